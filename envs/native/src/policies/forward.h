/* One network on many rows, and functions of many numbers: envs/native/forward.py and functions.py in NumPy. */

#ifndef PADDOCK_FORWARD_H
#define PADDOCK_FORWARD_H

#include <string.h>

#include "simd/functions.h"
#include "simd/product.h"
#include "networks.h"

INLINE size_t whole(int32_t width) { return ((size_t)width + WHOLE - 1) / WHOLE * WHOLE; }

/* What lies behind a layer's end in its last vector is computed too, and read by nobody. */
INLINE void squash_rows(float *at, size_t stride, int rows, int width, int relu)
{
    for (int r = 0; r < rows; r++, at += stride)
        for (int j = 0; j < width; j += LANES) {
            vf_row *x = (vf_row *)(at + j);
            *x = activated(*x, relu);
        }
}

static void forward_some(const struct forward *forward, const float *in, float *out, int rows, size_t widest)
{
    const int32_t *sizes = forward->sizes;
    float *one = forward->scratch, *other = one + FORWARD_ROWS * widest;
    const float *weights = forward->weights;
    size_t stride = (size_t)sizes[0];
    for (int k = 0; k < forward->layers; k++) {
        const size_t next = whole(sizes[k + 1]);
        const int width = (sizes[k + 1] + LANES - 1) / LANES * LANES;
        float *to = in == one ? other : one;
        product(in, stride, 1, sizes[k], weights, next, weights + (size_t)sizes[k] * next, to, next, rows, width);
        if (k + 1 < forward->layers) squash_rows(to, next, rows, width, forward->relu);
        weights += ((size_t)sizes[k] + 1) * next;
        in = to, stride = next;
    }
    const size_t outputs = (size_t)sizes[forward->layers];
    for (int r = 0; r < rows; r++) memcpy(out + r * outputs, in + r * stride, outputs * sizeof *out);
}

static void forward_rows(const struct forward *forward)
{
    const int32_t *sizes = forward->sizes;
    size_t widest = 0;
    for (int k = 1; k <= forward->layers; k++) widest = whole(sizes[k]) > widest ? whole(sizes[k]) : widest;
    for (int64_t first = 0; first < forward->rows; first += FORWARD_ROWS) {
        const int64_t left = forward->rows - first;
        forward_some(
            forward, forward->input + first * sizes[0], forward->output + first * sizes[forward->layers],
            left < FORWARD_ROWS ? (int)left : FORWARD_ROWS, widest
        );
    }
}

INLINE vf function_of(int function, vf x)
{
    return function == FUNCTION_TANGENT ? quick_tangent(x) : function == FUNCTION_EXP ? quick_exp(x) : quick_log(x);
}

INLINE void apply_one(int function, const float *x, float *y, int64_t count)
{
    for (; count >= LANES; count -= LANES, x += LANES, y += LANES)
        *(vf_row *)y = function_of(function, *(const vf_row *)x);
    if (count <= 0) return;
    vf rest = {0};
    memcpy(&rest, x, (size_t)count * sizeof *x);
    rest = function_of(function, rest);
    memcpy(y, &rest, (size_t)count * sizeof *y);
}

/* The functions' names are constants in each call, so that none is looked for in the loop. */
static void apply(int function, const float *x, float *y, int64_t count)
{
    if (function == FUNCTION_TANGENT) apply_one(FUNCTION_TANGENT, x, y, count);
    else if (function == FUNCTION_EXP) apply_one(FUNCTION_EXP, x, y, count);
    else apply_one(FUNCTION_LOG, x, y, count);
}

#endif
