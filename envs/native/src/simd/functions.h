/* SIMD functions in single precision with the same bits on every CPU: only operations that IEEE 754 rounds exactly. */

#pragma once

#include "simd/lanes.h"

#define ROUNDING 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
#define LN2_HIGH 0x1.62e4p-1f /* ln 2 in two parts, the first short enough for exact products */
#define LN2_LOW 0x1.7f7d1cp-20f
#define HALF_LOG_2PI 0.918938533204672742f
#define LOG_2 0.693147180559945309f
#define MIN_LOG_STD -20.0f /* bounds of log standard deviations that are network outputs */
#define MAX_LOG_STD 2.0f

/* exp(r) - 1 for |r| <= ln(2) / 2. */
INLINE vf exp_less_one(vf r)
{
    vf rest = 1.0f / 720 + r * (1.0f / 5040);
    rest = 1.0f / 24 + r * (1.0f / 120 + r * rest);
    rest = 1.0f / 2 + r * (1.0f / 6 + r * rest);
    return r + (r * r) * rest;
}

/* tanh within 3 ULP; NaN stays NaN. */
INLINE vf fast_tanh(vf x)
{
    vf size = magnitude(x);
    size = pick(size > splat(10.0f), splat(10.0f), size);
    vf shifted = size * -0x1.715476p1f + ROUNDING; /* -2/ln 2 */
    vf n = shifted - ROUNDING;
    vf r = (size * -2.0f - n * LN2_HIGH) - n * LN2_LOW;
    vf power = (vf)(((vu)shifted << 23) + 0x3f800000u);
    vf e = power * exp_less_one(r) + (power - 1.0f); /* exp(-2 size) - 1 */
    vf y = e / (e + 2.0f);
    return (vf)((vi)magnitude(y) | ((vi)x & (int32_t)0x80000000));
}

/* exp within 2 ULP where the result is normal: 0 below -104, infinity above 88.8, NaN for NaN. */
INLINE vf fast_exp(vf x)
{
    x = pick(x < splat(-104.0f), splat(-104.0f), x);
    x = pick(x > splat(89.0f), splat(89.0f), x);
    vf shifted = x * 0x1.715476p0f + ROUNDING; /* 1/ln 2 */
    vf n = shifted - ROUNDING;
    vf r = (x - n * LN2_HIGH) - n * LN2_LOW;
    /* Two factors, as one power could overflow; for NaN they are arbitrary, and sums may wrap around. */
    vi whole = (vi)((vu)shifted - 0x4b400000u), half = whole >> 1;
    vf one = (vf)(((vu)half + 127) << 23), other = (vf)(((vu)whole - (vu)half + 127) << 23);
    return (1.0f + exp_less_one(r)) * one * other;
}

/* Natural logarithm within 2 ULP: -inf for 0, NaN for negative numbers and NaN. Polynomial of Cephes' logf (Moshier
 * 1992). */
INLINE vf fast_log(vf x)
{
    vi small = x < splat(0x1p-126f), plain = (x > splat(0)) & (x < splat(__builtin_inff()));
    vf scaled = pick(small, x * 0x1p23f, x);
    vi power = (vi)((vu)scaled - 0x3f3504f3u) >> 23; /* sqrt(1/2) <= m < sqrt(2) */
    vf f = (vf)((vu)scaled - ((vu)power << 23)) - 1.0f;
    vf e = __builtin_convertvector(power - (small & 23), vf);
    vf z = f * f;
    vf y = 7.0376836292e-2f * f - 1.1514610310e-1f;
    y = y * f + 1.1676998740e-1f;
    y = y * f - 1.2420140846e-1f;
    y = y * f + 1.4249322787e-1f;
    y = y * f - 1.6668057665e-1f;
    y = y * f + 2.0000714765e-1f;
    y = y * f - 2.4999993993e-1f;
    y = y * f + 3.3333331174e-1f;
    y = (y * f) * z + e * -2.12194440e-4f;
    y = (f + (y - 0.5f * z)) + e * 0.693359375f;
    vf other = pick(x == splat(0), splat(-__builtin_inff()), pick(x > splat(0), x, splat(__builtin_nanf(""))));
    return pick(plain, y, other);
}

/* Clip x to the bounds. Unlike `clamp`, NaN stays NaN. */
INLINE vf within(vf x, float low, float high)
{
    x = pick(x < splat(low), splat(low), x);
    return pick(x > splat(high), splat(high), x);
}

/* log(1 - tanh^2 x), without saturation. */
INLINE vf log_tanh_derivative(vf x)
{
    vf twice = x * -2.0f;
    vf softplus = pick(twice > splat(0), twice, splat(0)) + fast_log(1.0f + fast_exp(-magnitude(twice)));
    return ((LOG_2 - x) - softplus) * 2.0f;
}

/* Activation between the layers of a network. */
INLINE vf activated(vf x, int relu) { return relu ? pick(x < splat(0), splat(0), x) : fast_tanh(x); }
