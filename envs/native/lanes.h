/* Lanes: every operation on LANES numbers at once, each lane of them another environment.
 *
 * Only the compiler's vector types are used, and only operations that IEEE 754 rounds exactly: a lane's numbers depend
 * neither on the width nor on the processor. Files that include this are compiled once for each width. */

#ifndef PADDOCK_LANES_H
#define PADDOCK_LANES_H

#include <stdint.h>

#ifndef LANES
#error "define LANES (4, 8, 16 or 32) before this header"
#endif

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* Where a part of a step begins; scripts/bench_native.py builds with a header of its own, which counts their cycles. */
#ifdef PADDOCK_SPLIT
#include PADDOCK_SPLIT
#else
#define SPLIT(part)
#endif

#define INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES))); /* comparisons of vf give it: -1 where true, else 0 */
typedef uint32_t vu __attribute__((vector_size(4 * LANES))); /* for sums that may wrap around */
typedef double vd __attribute__((vector_size(8 * LANES)));
typedef int64_t vl __attribute__((vector_size(8 * LANES)));

#define ALL_LANES (0xffffffffu >> (32 - LANES))

INLINE vf splat(float x) { return x - (vf){0}; }
INLINE vi splat_i(int32_t x) { return x - (vi){0}; }

INLINE vd widen(vf x) { return __builtin_convertvector(x, vd); }
INLINE vf narrow(vd x) { return __builtin_convertvector(x, vf); }
INLINE vl widen_mask(vi m) { return __builtin_convertvector(m, vl); }

/* Where m, one; else, other. */
INLINE vf pick(vi m, vf one, vf other) { return (vf)(((vi)one & m) | ((vi)other & ~m)); }
INLINE vi pick_i(vi m, vi one, vi other) { return (one & m) | (other & ~m); }
INLINE vd pick_d(vl m, vd one, vd other) { return (vd)(((vl)one & m) | ((vl)other & ~m)); }
INLINE vf keep(vi m, vf x) { return (vf)((vi)x & m); } /* x where m, else 0 */

INLINE vf least(vf a, vf b) { return pick(a < b, a, b); }
INLINE vf most(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf clamp(vf x, vf low, vf high) { return most(low, least(x, high)); }
INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }

INLINE vf root(vf x)
{
    vf y;
    for (int i = 0; i < LANES; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
}

INLINE int any(vi m)
{
    typedef int64_t half __attribute__((vector_size(4 * LANES)));
    half x = (half)m;
    int64_t some = 0;
    for (int i = 0; i < LANES / 2; i++) some |= x[i];
    return some != 0;
}

/* Bit i of the result is lane i of the mask. */
INLINE unsigned to_bits(vi m)
{
    typedef int64_t half __attribute__((vector_size(4 * LANES)));
    vi bit;
    for (int i = 0; i < LANES; i++) bit[i] = (int32_t)(1u << i);
    half pairs = (half)(m & bit);
    int64_t both = 0;
    for (int i = 0; i < LANES / 2; i++) both |= pairs[i];
    return (unsigned)both | (unsigned)(both >> 32);
}

INLINE vi from_bits(unsigned bits)
{
    vi bit;
    for (int i = 0; i < LANES; i++) bit[i] = (int32_t)(1u << i);
    return (splat_i((int32_t)bits) & bit) != 0;
}

/* Sine and cosine in double precision: polynomials and constants of ARM's optimized routines (sincosf), which glibc has
 * too, so that the results are libm's but for one in millions. For |x| < 1e6. */
INLINE void sine_cosine_d(vd x, vd *sine, vd *cosine)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to the nearest whole number */
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

#endif
