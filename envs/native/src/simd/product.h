/* Products of small matrices, with sums in a fixed order: the same bits at every SIMD width.
 *
 * A tile of the result stays in registers. Rows of matrices are padded to whole vectors and may be unaligned. */

#pragma once

#include <stddef.h>

#include "simd/lanes.h"

typedef float vf_row __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define TILE_ROWS 4
#define TILE_VECTORS (LANES == 16 ? 4 : 2) /* AVX-512 has 32 registers, the others 16 */

/* Rows of b to prefetch by the tile that reads them first; their stride defeats the hardware prefetcher. */
#define AHEAD 16

/* c[r][v] = sum over k of a[r * row + k * next] * b[k * wide + v], plus bias[v] if given. */
INLINE void product_tile(
    const float *a, size_t row, size_t next, int count, const float *b, size_t wide, const float *bias, float *c,
    size_t c_wide, int rows, int vectors, int leads
)
{
    vf sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = a[r * row] * *(const vf_row *)(b + v * LANES);
    for (int k = 1; k < count; k++) {
        a += next, b += wide;
        vf other[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) other[v] = *(const vf_row *)(b + v * LANES);
        for (int v = 0; leads && v < vectors; v++) __builtin_prefetch(b + AHEAD * wide + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * row] * other[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            if (bias) sum[r][v] += *(const vf_row *)(bias + v * LANES);
            *(vf_row *)(c + r * c_wide + v * LANES) = sum[r][v];
        }
}

/* The same for any number of rows and a width that is a multiple of LANES. */
static void product(
    const float *a, size_t row, size_t next, int count, const float *b, size_t wide, const float *bias, float *c,
    size_t c_wide, int rows, int width
)
{
    for (int r = 0; !count && r < rows; r++) /* empty sums */
        for (int j = 0; j < width; j += LANES)
            *(vf_row *)(c + r * c_wide + j) = bias ? splat(0) + *(const vf_row *)(bias + j) : splat(0);
    if (!count) return;
    for (int j = 0; j < width;) {
        const float *bias_j = bias ? bias + j : NULL;
        const int whole = j + TILE_VECTORS * LANES <= width;
        int r = 0;
#define TILE(tall, vectors, leads) \
    product_tile(a + r * row, row, next, count, b + j, wide, bias_j, c + r * c_wide + j, c_wide, tall, vectors, leads)
        if (whole) {
            if (rows >= TILE_ROWS) TILE(TILE_ROWS, TILE_VECTORS, 1), r = TILE_ROWS;
            for (; r + TILE_ROWS <= rows; r += TILE_ROWS) TILE(TILE_ROWS, TILE_VECTORS, 0);
            for (; r < rows; r++) TILE(1, TILE_VECTORS, 0);
        } else {
            for (; r + TILE_ROWS <= rows; r += TILE_ROWS) TILE(TILE_ROWS, 1, 0);
            for (; r < rows; r++) TILE(1, 1, 0);
        }
#undef TILE
        j += whole ? TILE_VECTORS * LANES : LANES;
    }
}
