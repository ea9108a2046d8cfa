/* What scripts/bench/limits/learn_limit.py asks of the processor: see there. Compiled with LANES, for the instructions in use. */

#include "simd/product.h"

#define CHAINS 12 /* of operations that wait for nothing but the last one of their own */

/* `rounds` times CHAINS vector operations, multiplications and additions in equal numbers. */
void play_peak(int64_t rounds, float one, float *sums)
{
    vf x[CHAINS];
    for (int k = 0; k < CHAINS; k++) x[k] = splat((float)k);
    for (int64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < CHAINS; k += 2) x[k] = x[k] * one, x[k + 1] = x[k + 1] + one;
    }
    for (int k = 0; k < CHAINS; k++) sums[k] = x[k][0];
}

/* c = a b, of n rows and n columns each; n is a multiple of 16. */
void multiply(const float *a, const float *b, float *c, int n) { product(a, n, 1, n, b, n, NULL, c, n, n, n); }
