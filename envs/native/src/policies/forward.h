/* Forward pass of a network on many rows, and functions of arrays. */

#pragma once

#include <string.h>

#include "simd/functions.h"
#include "simd/gather.h"
#include "simd/product.h"
#include "features.h"
#include "networks.h"

INLINE size_t whole(int32_t width) { return ((size_t)width + WHOLE - 1) / WHOLE * WHOLE; }

/* Activate rows; padding in the last vector is computed too, but never used. */
INLINE void squash_rows(float *at, size_t stride, int rows, int width, int relu)
{
    for (int r = 0; r < rows; r++, at += stride)
        for (int j = 0; j < width; j += LANES) {
            vf_row *x = (vf_row *)(at + j);
            *x = activated(*x, relu);
        }
}

/* The first layer of sparse rows. */
static void gather_layer(
    const struct sparse *sparse, int inputs, const float *weights, size_t wide, float *to, int rows, int width
)
{
    for (int r = 0; r < rows; r++) {
        const int64_t first = sparse->starts[r];
        gather_product(
            sparse->index + first, sparse->value ? sparse->value + first : NULL, (int)(sparse->starts[r + 1] - first),
            weights, wide, weights + inputs * wide, to + r * wide, width
        );
    }
}

/* Pass rows of `in`, or sparse rows if it is NULL, through all layers. */
static void forward_some(
    const struct forward *forward, const float *in, const struct sparse *sparse, float *out, int rows, size_t widest
)
{
    const int32_t *sizes = forward->sizes;
    float *one = forward->scratch, *other = one + FORWARD_ROWS * widest;
    const float *weights = forward->weights;
    size_t stride = (size_t)sizes[0];
    for (int k = 0; k < forward->layers; k++) {
        const size_t next = whole(sizes[k + 1]);
        const int width = (sizes[k + 1] + LANES - 1) / LANES * LANES;
        float *to = in == one ? other : one;
        if (!in) gather_layer(sparse, sizes[k], weights, next, to, rows, width);
        else
            product(
                in, stride, 1, sizes[k], weights, next, weights + (size_t)sizes[k] * next, 0, to, next, rows, width
            );
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
        struct sparse sparse = forward->sparse ? *forward->sparse : (struct sparse){0};
        if (forward->sparse) sparse.starts += first;
        forward_some(
            forward, forward->sparse ? NULL : forward->input + first * sizes[0], &sparse,
            forward->output + first * sizes[forward->layers], left < FORWARD_ROWS ? (int)left : FORWARD_ROWS, widest
        );
    }
}

/* Transpose rows of `width` numbers into lanes; unused lanes are 0. */
INLINE void gather_rows(const float *rows, int width, int count, vf *lanes)
{
    float *at = (float *)lanes;
    if (count < LANES) memset(lanes, 0, (size_t)width * sizeof *lanes);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < width; k++) at[k * LANES + i] = rows[i * width + k];
}

#define LOWEST -3.4028235e38f /* logit of illegal actions: probability 0 */

/* Mask illegal actions in lanes of logits; at least one action is legal. */
INLINE void forbid_lanes(const struct features *features, const uint8_t *rows, int width, int count, vf *out)
{
    for (int i = 0; features->legal >= 0 && i < count; i++) {
        const uint8_t *legal = rows + i * features->row_bytes + features->legal;
        for (int k = 0; k < width; k++)
            if (!legal[k]) ((float *)out)[k * LANES + i] = LOWEST;
    }
}

INLINE vf function_of(int function, vf x)
{
    return function == FUNCTION_TANH ? fast_tanh(x) : function == FUNCTION_EXP ? fast_exp(x) : fast_log(x);
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

/* Constant arguments let the compiler specialize each loop. */
static void apply(int function, const float *x, float *y, int64_t count)
{
    if (function == FUNCTION_TANH) apply_one(FUNCTION_TANH, x, y, count);
    else if (function == FUNCTION_EXP) apply_one(FUNCTION_EXP, x, y, count);
    else apply_one(FUNCTION_LOG, x, y, count);
}
