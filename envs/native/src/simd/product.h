/* Products of small matrices. Sums are chains of fused multiply-adds in the order of their terms: the same bits at every
 * SIMD width.
 *
 * A tile of the result stays in registers. Rows of matrices are padded to whole vectors and may be unaligned. */

#pragma once

#include <stddef.h>

#include "simd/transpose.h"

#define TILE_ROWS (LANES == 16 ? 14 : 6) /* AVX-512 has 32 registers, AVX2 has 16 */
#define TILE_VECTORS 2
#define ROW_VECTORS (LANES == 16 ? 4 : 8) /* of a tile of one row */
#define PANEL_TERMS 256                   /* terms summed at a time */
#define PANEL_WIDTH 128 /* width from which rows of b displace each other in the cache, so that tiles share a copy */
#define AHEAD 48        /* rows of b to prefetch; their stride defeats the hardware prefetcher */

/* c[r][v] = from[r * from_wide + v], or 0 if NULL, plus the sum over k of a[r * row + k * next] * b[k * wide + v].
 * Copy the values read from b to `panel`, and prefetch `soon`, rows of b to be copied next, unless they are NULL. */
INLINE void product_tile(
    const float *a, size_t row, size_t next, int count, const float *b, size_t wide, const float *from,
    size_t from_wide, float *c, size_t c_wide, float *panel, const float *soon, size_t soon_wide, int rows, int vectors
)
{
    vf sum[TILE_ROWS][ROW_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = from ? (vf) * (const vf_row *)(from + r * from_wide + v * LANES) : splat(0);
    for (int k = 0; k < count; k++, a += next, b += wide) {
        vf other[ROW_VECTORS];
        for (int v = 0; v < vectors; v++) other[v] = *(const vf_row *)(b + v * LANES);
        for (int v = 0; panel && v < vectors; v++) {
            __builtin_prefetch(b + AHEAD * wide + v * LANES);
            *(vf *)(panel + (k * vectors + v) * LANES) = other[v];
        }
        if (soon) __builtin_prefetch(soon + k * soon_wide, 0, 2);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] = fused(splat(a[r * row]), other[v], sum[r][v]);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(vf_row *)(c + r * c_wide + v * LANES) = sum[r][v];
}

/* The same for any number of rows and a width that is a multiple of LANES. `from` may be a bias (from_wide = 0) or c. */
static __attribute__((noinline)) void product(
    const float *a, size_t row, size_t next, int count, const float *b, size_t wide, const float *from,
    size_t from_wide, float *c, size_t c_wide, int rows, int width
)
{
    float panel[PANEL_TERMS * TILE_VECTORS * LANES] __attribute__((aligned(64)));
    do {
        const int terms = count < PANEL_TERMS ? count : PANEL_TERMS;
        for (int j = 0; j < width;) {
            const float *b_j = b + j, *from_j = from ? from + j : NULL;
            size_t b_wide = wide;
            int r = 0;
#define TILE(tall, vectors, copy, soon)                                                                                \
    product_tile(                                                                                                      \
        a + r * row, row, next, terms, b_j, b_wide, from_j ? from_j + r * from_wide : NULL, from_wide,                 \
        c + r * c_wide + j, c_wide, copy, soon, wide, tall, vectors                                                    \
    ),                                                                                                                 \
        r += tall
#define TILES(vectors)                                                                                                 \
    while (r + TILE_ROWS <= rows) TILE(TILE_ROWS, vectors, NULL, NULL);                                                \
    while (r + 4 <= rows) TILE(4, vectors, NULL, NULL);                                                                \
    if (r + 2 <= rows) TILE(2, vectors, NULL, NULL);                                                                   \
    if (r < rows) TILE(1, vectors, NULL, NULL);                                                                        \
    j += (vectors) * LANES
            if (rows < 4 && j + ROW_VECTORS * LANES <= width) {
                while (r < rows) TILE(1, ROW_VECTORS, NULL, NULL);
                j += ROW_VECTORS * LANES;
            } else if (j + TILE_VECTORS * LANES <= width) {
                if (wide >= PANEL_WIDTH && rows > TILE_ROWS) {
                    TILE(TILE_ROWS, TILE_VECTORS, panel, NULL);
                    b_j = panel, b_wide = TILE_VECTORS * LANES;
                    if (r + TILE_ROWS <= rows && j + b_wide < (size_t)width)
                        TILE(TILE_ROWS, TILE_VECTORS, NULL, b + j + b_wide);
                }
                TILES(TILE_VECTORS);
            } else {
                TILES(1);
            }
#undef TILES
#undef TILE
        }
        a += terms * next, b += terms * wide, count -= terms;
        from = c, from_wide = c_wide;
    } while (count > 0);
}
