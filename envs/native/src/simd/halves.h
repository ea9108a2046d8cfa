/* Double precision for half of the lanes, which fill one register. */

#pragma once

#include "simd/lanes.h"

#define HALF (LANES / 2)

typedef double hd __attribute__((vector_size(4 * LANES)));
typedef int64_t hl __attribute__((vector_size(4 * LANES))); /* result of comparing hd: -1 if true, else 0 */
typedef float hf __attribute__((vector_size(2 * LANES)));
typedef int32_t hi __attribute__((vector_size(2 * LANES)));

INLINE hd splat_h(double x) { return x - (hd){0}; }
INLINE hf splat_hf(float x) { return x - (hf){0}; }
INLINE hd pick_h(hl m, hd one, hd other) { return (hd)(((hl)one & m) | ((hl)other & ~m)); }
INLINE hf pick_hf(hi m, hf one, hf other) { return (hf)(((hi)one & m) | ((hi)other & ~m)); }
INLINE hd magnitude_h(hd x) { return (hd)((hl)x & 0x7fffffffffffffff); }
INLINE hd least_h(hd a, hd b) { return pick_h(a < b, a, b); }
INLINE hd most_h(hd a, hd b) { return pick_h(a > b, a, b); }
INLINE hd clamp_h(hd x, double low, double high) { return most_h(least_h(x, splat_h(high)), splat_h(low)); }
INLINE hd widen_h(hf x) { return __builtin_convertvector(x, hd); }
INLINE hf narrow_h(hd x) { return __builtin_convertvector(x, hf); }
INLINE hf load_h(const float *lanes, int half) { return *(const hf *)(lanes + half * HALF); }
INLINE void store_h(float *lanes, int half, hd x) { *(hf *)(lanes + half * HALF) = narrow_h(x); }

INLINE int any_h(hl m) { return any((vi)m); }

/* Conversion between mask halves and integers with bit i for lane i. */
#if defined(__x86_64__) && LANES == 16
INLINE unsigned half_bits(hl m) { return _mm512_movepi64_mask((__m512i)m); }
INLINE hl from_bits_h(unsigned bits, int half) { return (hl)_mm512_movm_epi64((__mmask8)(bits >> half * HALF)); }
#else
#if LANES == 4
#define HALF_BITS 1, 2
#elif LANES == 8
#define HALF_BITS 1, 2, 4, 8
#else
#define HALF_BITS 1, 2, 4, 8, 16, 32, 64, 128
#endif
INLINE hl from_bits_h(unsigned bits, int half)
{
    int64_t own = bits >> half * HALF;
    return ((own - (hl){0}) & (hl){HALF_BITS}) != 0;
}
#if defined(__x86_64__) && LANES == 8
INLINE unsigned half_bits(hl m) { return (unsigned)_mm256_movemask_pd((__m256d)m); }
#elif defined(__x86_64__) && LANES == 4
INLINE unsigned half_bits(hl m) { return (unsigned)_mm_movemask_pd((__m128d)m); }
#else
INLINE unsigned half_bits(hl m)
{
    unsigned bits = 0;
    for (int i = 0; i < HALF; i++) bits |= (unsigned)(m[i] & 1) << i;
    return bits;
}
#endif
#endif
INLINE unsigned to_bits_h(const hl m[2]) { return half_bits(m[0]) | half_bits(m[1]) << HALF; }

/* Nearest multiple of pi/2, in the low bits of `quadrant`, and the remainder as the sum of two numbers. */
struct reduced {
    hl quadrant;
    hd rest, tail;
};

/* x - n pi/2 for |x| < 1e6, with pi/2 in the two parts of fdlibm's e_rem_pio2.c (Cody and Waite). */
INLINE struct reduced reduce_h(hd x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    hd shifted = x * 6.36619772367581382433e-01 + magic;
    hd n = shifted - magic;
    hd first = x - n * 1.57079632673412561417e+00; /* exact: the constant has 33 bits */
    hd second = n * 6.07710050650619224932e-11;
    hd rest = first - second;
    return (struct reduced){(hl)shifted, rest, (first - rest) - second};
}

/* fdlibm's k_sin.c and k_cos.c (Sun Microsystems 1993; freely distributable): error below 1 ULP for |x + y| < pi/4. */
INLINE void sine_cosine_kernel(hd x, hd y, hd *sine, hd *cosine)
{
    hd z = x * x, v = z * x;
    hd r = 8.33333333332248946124e-03 +
           z * (-1.98412698298579493134e-04 +
                z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
    *sine = x - ((z * (0.5 * y - v * r) - y) - v * -1.66666666666666324348e-01);
    hd q = z * (4.16666666666666019037e-02 +
                z * (-1.38888888888741095749e-03 +
                     z * (2.48015872894767294178e-05 +
                          z * (-2.75573143513906633035e-07 +
                               z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    hd half = 0.5 * z, w = 1.0 - half;
    *cosine = w + (((1.0 - w) - half) + (z * q - x * y));
}

/* Error below 1 ULP, or 2^-66 near zeros, for |x| < 1e6. */
INLINE void sine_cosine_h(hd x, hd *sine, hd *cosine)
{
    struct reduced reduced = reduce_h(x);
    hd s, c;
    sine_cosine_kernel(reduced.rest, reduced.tail, &s, &c);
    hl odd = -(reduced.quadrant & 1);
    hl sine_sign = (reduced.quadrant & 2) << 62, cosine_sign = sine_sign ^ odd << 63;
    *sine = (hd)((hl)pick_h(odd, c, s) ^ sine_sign);
    *cosine = (hd)((hl)pick_h(odd, s, c) ^ cosine_sign);
}

/* The same results, faster if no angle is large. */
INLINE void small_sine_cosine_h(hd x, hd *sine, hd *cosine)
{
    if (any_h(magnitude_h(x) > 0.78)) sine_cosine_h(x, sine, cosine);
    else sine_cosine_kernel(x, splat_h(0), sine, cosine);
}

INLINE hd cosine_h(hd x)
{
    hd sine, cosine;
    sine_cosine_h(x, &sine, &cosine);
    return cosine;
}
