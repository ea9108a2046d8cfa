/* Products of sparse rows with dense matrices: only rows of weights with a non-zero factor are read, and only those of
 * the gradient are written.
 *
 * Sums start at the bias and follow the order of the inputs. Skipped terms would add 0 or -0, which leaves such sums
 * unchanged: for finite weights the bits equal those of product.h, except for a bias of -0. */

#pragma once

#include "simd/product.h"
#include "simd/sparse.h"

#define GATHER_VECTORS 8 /* sums kept in registers */

INLINE void gather_tile(
    const uint16_t *index, const float *value, int count, const float *b, size_t wide, const float *bias, float *c,
    int vectors, int weighed
)
{
    vf sum[GATHER_VECTORS];
    for (int v = 0; v < vectors; v++) sum[v] = *(const vf_row *)(bias + v * LANES);
    for (int k = 0; k < count; k++) {
        const float *row = b + index[k] * wide;
        for (int v = 0; v < vectors; v++) {
            const vf weights = *(const vf_row *)(row + v * LANES);
            sum[v] = weighed ? fused(splat(value[k]), weights, sum[v]) : sum[v] + weights;
        }
    }
    for (int v = 0; v < vectors; v++) *(vf_row *)(c + v * LANES) = sum[v];
}

/* c = row * b + bias; the width of b is a multiple of LANES. */
INLINE void gather_product(
    const uint16_t *index, const float *value, int count, const float *b, size_t wide, const float *bias, float *c,
    int width
)
{
    int j = 0;
#define TILE(vectors)                                                                                                  \
    for (; j + (vectors) * LANES <= width; j += (vectors) * LANES) {                                                   \
        if (value) gather_tile(index, value, count, b + j, wide, bias + j, c + j, vectors, 1);                         \
        else gather_tile(index, value, count, b + j, wide, bias + j, c + j, vectors, 0);                               \
    }
    TILE(GATHER_VECTORS)
    TILE(4)
    TILE(1)
#undef TILE
}

INLINE void scatter_tile(
    const uint16_t *index, const float *value, int count, const float *by, float *onto, size_t wide, int vectors,
    int weighed
)
{
    vf given[GATHER_VECTORS];
    for (int v = 0; v < vectors; v++) given[v] = *(const vf_row *)(by + v * LANES);
    for (int k = 0; k < count; k++) {
        float *row = onto + index[k] * wide;
        for (int v = 0; v < vectors; v++) {
            vf_row *to = (vf_row *)(row + v * LANES);
            *to = weighed ? fused(splat(value[k]), given[v], *to) : given[v] + *to;
        }
    }
}

/* onto[index[k]][v] += value[k] * by[v] */
INLINE void scatter_gradient(
    const uint16_t *index, const float *value, int count, const float *by, float *onto, size_t wide, int width
)
{
    int j = 0;
#define TILE(vectors)                                                                                                  \
    for (; j + (vectors) * LANES <= width; j += (vectors) * LANES) {                                                   \
        if (value) scatter_tile(index, value, count, by + j, onto + j, wide, vectors, 1);                              \
        else scatter_tile(index, value, count, by + j, onto + j, wide, vectors, 0);                                    \
    }
    TILE(GATHER_VECTORS)
    TILE(4)
    TILE(1)
#undef TILE
}
