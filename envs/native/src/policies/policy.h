/* Small networks, one per SIMD lane, as in envs/native/networks.py, with the heads of algos/networks/heads/head.py. */

#pragma once

#include <string.h>

#include "simd/functions.h"
#include "simd/lanes.h"
#include "networks.h"
#include "rollout.h"

/* Parameter i, shared by all lanes or one per lane ([P] vectors). */
INLINE vf parameter(const float *parameters, size_t i, int shared)
{
    return shared ? splat(parameters[i]) : ((const vf *)parameters)[i];
}

/* Normalize an observation as `Normalizer` of envs/native/networks.py does. */
INLINE vf standardized(vf x, float mean, float std, float clip) { return within((x - mean) / std, -clip, clip); }

/* Compute `count` outputs of a layer, summed from the bias on. */
INLINE void outputs(
    const vf *in, int fan_in, const float *weights, const float *bias, int stride, vf *out, int count, int shared
)
{
    vf sum[8];
    for (int k = 0; k < count; k++) sum[k] = parameter(bias, k, shared);
    for (int i = 0; i < fan_in; i++, weights += (size_t)stride * (shared ? 1 : LANES))
        for (int k = 0; k < count; k++) sum[k] = fused(in[i], parameter(weights, k, shared), sum[k]);
    for (int k = 0; k < count; k++) out[k] = sum[k];
}

/* Constant counts keep the sums in registers. `stride`: parameters from one input's weights to the next's. */
INLINE void dense(const vf *in, int fan_in, const float *weights, int stride, int fan_out, vf *out, int shared)
{
    const size_t each = shared ? 1 : LANES;
    const float *bias = weights + (size_t)fan_in * stride * each;
    int j = 0;
#define OUTPUTS(count) outputs(in, fan_in, weights + j * each, bias + j * each, stride, out + j, count, shared)
    for (; j + 8 <= fan_out; j += 8) OUTPUTS(8);
    for (; j + 4 <= fan_out; j += 4) OUTPUTS(4);
    for (; j + 2 <= fan_out; j += 2) OUTPUTS(2);
    for (; j < fan_out; j++) OUTPUTS(1);
#undef OUTPUTS
}

static void dense_shared(const vf *in, int fan_in, const float *weights, int stride, int fan_out, vf *out)
{
    dense(in, fan_in, weights, stride, fan_out, out, 1);
}

static void dense_own(const vf *in, int fan_in, const float *weights, int stride, int fan_out, vf *out)
{
    dense(in, fan_in, weights, stride, fan_out, out, 0);
}

INLINE vf unaligned(const float *at)
{
    vf x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* Compute `count` vectors of one network's outputs, one output per lane, summed in the order of `outputs`. */
INLINE void row_outputs(
    const float *in, int fan_in, const float *weights, const float *bias, int stride, float *out, int count
)
{
    vf sum[8];
    for (int k = 0; k < count; k++) sum[k] = unaligned(bias + k * LANES);
    for (int i = 0; i < fan_in; i++, weights += stride)
        for (int k = 0; k < count; k++) sum[k] = fused(splat(in[i]), unaligned(weights + k * LANES), sum[k]);
    for (int k = 0; k < count; k++) memcpy(out + k * LANES, &sum[k], sizeof(vf));
}

static void dense_row(const float *in, int fan_in, const float *weights, int fan_out, float *out)
{
    const float *bias = weights + (size_t)fan_in * fan_out;
    int j = 0;
    for (; j + 4 * LANES <= fan_out; j += 4 * LANES) row_outputs(in, fan_in, weights + j, bias + j, fan_out, out + j, 4);
    for (; j < fan_out; j += LANES) row_outputs(in, fan_in, weights + j, bias + j, fan_out, out + j, 1);
}

static void squash_row(float *row, int width, int relu)
{
    for (int j = 0; j < width; j += LANES) {
        vf x = unaligned(row + j);
        x = activated(x, relu);
        memcpy(row + j, &x, sizeof x);
    }
}

/* Run networks one by one; padding in the last vector of a layer is computed too, but never used. */
static void run_rows(const struct networks *networks)
{
    const int layers = networks->layers;
    const int32_t *sizes = networks->sizes;
    int widest = 0;
    for (int k = 1; k <= layers; k++) widest = sizes[k] > widest ? sizes[k] : widest;
    for (int64_t slot = 0; slot < networks->slots; slot++) {
        const float *parameters = networks->parameters + slot * networks->num_parameters;
        const float *in = networks->input + slot * sizes[0];
        float *out = networks->scratch;
        for (int k = 0; k < layers; k++) {
            out = networks->scratch + (k % 2) * ((size_t)widest + SPARE_FLOATS);
            dense_row(in, sizes[k], parameters, sizes[k + 1], out);
            parameters += (size_t)(sizes[k] + 1) * sizes[k + 1];
            if (k + 1 < layers) squash_row(out, sizes[k + 1], networks->relu);
            else if (networks->bounded) squash_row(out, sizes[k + 1], 0);
            in = out;
        }
        memcpy(networks->output + slot * sizes[layers], out, sizeof *out * sizes[layers]);
    }
}

/* Argmax; the first of equal outputs, and NaN is the greatest, as in numpy.argmax. */
INLINE vf greatest(const vf *out, int count)
{
    vf best = out[0], choice = splat(0);
    for (int k = 1; k < count; k++) {
        vi better = (out[k] > best) | ((out[k] != out[k]) & (best == best));
        best = pick(better, out[k], best);
        choice = pick(better, splat((float)k), choice);
    }
    return choice;
}

/* Choose actions for observations, whose rows are `stride` vectors apart; `one` and `other` hold the widest layer.
 * Parameters are [P], or [P] vectors with several members. Return the lanes whose actions are finite. */
static vi choose_actions(
    const struct rollout *rollout, const float *parameters, const vf *obs, vf *action, int stride, vf *one, vf *other
)
{
    const int shared = rollout->members == 1;
    const int last = rollout->layers - 1;
    const int32_t *sizes = rollout->sizes;
    for (int i = 0; i < sizes[0]; i++) {
        vf x = obs[i * stride];
        one[i] = rollout->mean ? standardized(x, rollout->mean[i], rollout->std[i], rollout->clip) : x;
    }
    for (int k = 0; k <= last; k++) {
        (shared ? dense_shared : dense_own)(one, sizes[k], parameters, sizes[k + 1], sizes[k + 1], other);
        parameters += (size_t)(sizes[k] + 1) * sizes[k + 1] * (shared ? 1 : LANES);
        for (int j = 0; k < last && j < sizes[k + 1]; j++) other[j] = activated(other[j], rollout->relu);
        vf *swap = one;
        one = other, other = swap;
    }
    int width = sizes[last + 1];
    if (rollout->head == HEAD_DISCRETE) {
        action[0] = greatest(one, width);
        return splat_i(-1);
    }
    vi finite = splat_i(-1);
    for (int j = 0; j < width; j++) {
        float low = rollout->low[j], high = rollout->high[j];
        vf x = one[j];
        if (rollout->head == HEAD_BOUNDED) x = (fast_tanh(x) + 1.0f) * (0.5f * (high - low)) + low;
        action[j * stride] = x = within(x, low, high);
        finite &= magnitude(x) <= splat(3.4028235e38f);
    }
    return finite;
}
