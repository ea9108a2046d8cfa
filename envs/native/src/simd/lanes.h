/* SIMD vectors of LANES numbers, usually one environment per lane.
 *
 * Only compiler vector types and operations that IEEE 754 rounds exactly are used, so results depend neither on the
 * width nor on the CPU. Operations are fused only by `fused`, which networks use. Files that include this header are compiled once per instruction set. Square roots and masks
 * use intrinsics, as vector types have no operators for them and the auto-vectorizer, which also fuses operations, is
 * off. */

#pragma once

#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef LANES
#error "define LANES (4, 8, 16 or 32) before this header"
#endif

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES))); /* result of comparing vf: -1 if true, else 0 */
typedef uint32_t vu __attribute__((vector_size(4 * LANES))); /* for sums that may wrap */
typedef double vd __attribute__((vector_size(8 * LANES)));
typedef int64_t vl __attribute__((vector_size(8 * LANES)));

#define ALL_LANES (0xffffffffu >> (32 - LANES))

INLINE vf splat(float x) { return x - (vf){0}; }
INLINE vi splat_i(int32_t x) { return x - (vi){0}; }

INLINE vd widen(vf x) { return __builtin_convertvector(x, vd); }
INLINE vf narrow(vd x) { return __builtin_convertvector(x, vf); }
INLINE vl widen_mask(vi m) { return __builtin_convertvector(m, vl); }

/* m ? one : other, per lane. */
INLINE vf pick(vi m, vf one, vf other) { return (vf)(((vi)one & m) | ((vi)other & ~m)); }
INLINE vi pick_i(vi m, vi one, vi other) { return (one & m) | (other & ~m); }
INLINE vd pick_d(vl m, vd one, vd other) { return (vd)(((vl)one & m) | ((vl)other & ~m)); }
INLINE vf keep(vi m, vf x) { return (vf)((vi)x & m); } /* x where m, else 0 */

INLINE vf least(vf a, vf b) { return pick(a < b, a, b); }
INLINE vf most(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf clamp(vf x, vf low, vf high) { return most(low, least(x, high)); }
INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }

#if LANES == 4
#define LANE_BITS 1, 2, 4, 8
#elif LANES == 8
#define LANE_BITS 1, 2, 4, 8, 16, 32, 64, 128
#elif LANES == 16
#define LANE_BITS 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768
#endif

/* Square root; test for any set bit; conversion between masks and integers with bit i for lane i. */
#if defined(__x86_64__) && LANES == 16
INLINE vf root(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
INLINE int any(vi m) { return _mm512_test_epi32_mask((__m512i)m, (__m512i)m) != 0; }
INLINE unsigned to_bits(vi m) { return _mm512_movepi32_mask((__m512i)m); }
INLINE vi from_bits(unsigned bits) { return (vi)_mm512_movm_epi32((__mmask16)bits); }
#else
INLINE vi from_bits(unsigned bits) { return (splat_i((int32_t)bits) & (vi){LANE_BITS}) != 0; }
#if defined(__x86_64__) && LANES == 8
INLINE vf root(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
INLINE int any(vi m) { return !_mm256_testz_si256((__m256i)m, (__m256i)m); }
INLINE unsigned to_bits(vi m) { return (unsigned)_mm256_movemask_ps((__m256)m); }
#elif defined(__x86_64__) && LANES == 4
INLINE vf root(vf x) { return (vf)_mm_sqrt_ps((__m128)x); }
INLINE int any(vi m) { return _mm_movemask_epi8((__m128i)(m == 0)) != 0xffff; }
INLINE unsigned to_bits(vi m) { return (unsigned)_mm_movemask_ps((__m128)m); }
#elif defined(__aarch64__) && LANES == 4
INLINE vf root(vf x) { return (vf)vsqrtq_f32((float32x4_t)x); }
INLINE int any(vi m) { return vmaxvq_u32((uint32x4_t)m) != 0; }
INLINE unsigned to_bits(vi m) { return vaddvq_u32((uint32x4_t)(m & (vi){LANE_BITS})); }
#else
INLINE vf root(vf x)
{
    vf y;
    for (int i = 0; i < LANES; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
}

INLINE int any(vi m)
{
    int32_t some = 0;
    for (int i = 0; i < LANES; i++) some |= m[i];
    return some != 0;
}

INLINE unsigned to_bits(vi m)
{
    unsigned bits = 0;
    for (int i = 0; i < LANES; i++) bits |= (unsigned)(m[i] & 1) << i;
    return bits;
}
#endif
#endif

/* a * b + c, rounded once. */
#if defined(__x86_64__) && LANES == 16
INLINE vf fused(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
#elif defined(__x86_64__) && LANES == 8
INLINE vf fused(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
#elif defined(__aarch64__) && LANES == 4
INLINE vf fused(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
/* Rounded to double, then to float: other bits are possible only where the first result lies halfway between two floats,
 * or is not normal. */
INLINE vf fused(vf a, vf b, vf c)
{
    const vd sum = widen(a) * widen(b) + widen(c); /* the product is exact */
    vf y = narrow(sum);
    const vi halfway = (__builtin_convertvector((vl)sum, vi) & 0x1fffffff) == 0x10000000;
    const vi tiny = (magnitude(y) <= splat(0x1p-126f)) & (c != splat(0));
    if (__builtin_expect(any(halfway | tiny), 0))
        for (int i = 0; i < LANES; i++) y[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return y;
}
#endif

/* Sine and cosine for |x| < 1e6: polynomials of ARM's optimized routines (sincosf), also used by glibc, so that results
 * equal libm's except for one in millions. */
INLINE void sine_cosine_d(vd x, vd *sine, vd *cosine)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    vd shifted = x * 0x1.45f306dc9c883p-1 + magic; /* 2/pi */
    vl quadrant = (vl)shifted;
    vd r = x - (shifted - magic) * 0x1.921fb54442d18p0; /* pi/2 */
    vd r2 = r * r, r3 = r * r2, r4 = r2 * r2;
    vd s = (r + r3 * -0x1.555545995a603p-3) + (r3 * r2) * (0x1.1107605230bc4p-7 + r2 * -0x1.994eb3774cf24p-13);
    vd c = ((1.0 + r2 * -0x1.ffffffd0c621cp-2) + r4 * 0x1.55553e1068f19p-5) +
           (r4 * r2) * (-0x1.6c087e89a359dp-10 + r2 * 0x1.99343027bf8c3p-16);
    vl odd = -(quadrant & 1);
    vl sine_sign = (quadrant & 2) << 62, cosine_sign = sine_sign ^ odd << 63;
    *sine = (vd)((vl)pick_d(odd, c, s) ^ sine_sign);
    *cosine = (vd)((vl)pick_d(odd, s, c) ^ cosine_sign);
}

INLINE void sine_cosine(vf x, vf *sine, vf *cosine)
{
    vd s, c;
    sine_cosine_d(widen(x), &s, &c);
    *sine = narrow(s), *cosine = narrow(c);
}
