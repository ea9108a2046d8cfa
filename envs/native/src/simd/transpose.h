/* Interleaving of vectors, and transposition of square blocks with it. */

#pragma once

#include <string.h>

#include "simd/lanes.h"

typedef float vf_row __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#if LANES == 4
#define LOW_LANES 0, 4, 1, 5
#define HIGH_LANES 2, 6, 3, 7
#elif LANES == 8
#define LOW_LANES 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_LANES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW_LANES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_LANES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif
#ifdef __clang__
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, LOW_LANES)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, HIGH_LANES)
#else
#define ZIP_LOW(a, b) __builtin_shuffle(a, b, (vi){LOW_LANES})
#define ZIP_HIGH(a, b) __builtin_shuffle(a, b, (vi){HIGH_LANES})
#endif

/* Transpose LANES x LANES numbers. */
INLINE void transpose(vf block[LANES])
{
    vf other[LANES];
    for (int width = 1; width < LANES; width *= 2) {
        for (int i = 0; i < LANES / 2; i++) {
            other[2 * i] = ZIP_LOW(block[i], block[i + LANES / 2]);
            other[2 * i + 1] = ZIP_HIGH(block[i], block[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; i++) block[i] = other[i];
    }
}

/* Write from[k * wide + i] to to[i * to_wide + k] for count x width numbers. Rows of `to` are padded with 0 to whole
 * vectors. */
INLINE void transpose_rows(const float *from, size_t wide, int count, int width, float *to, size_t to_wide)
{
    for (int k = 0; k < count; k += LANES)
        for (int i = 0; i < width; i += LANES) {
            const int columns = width - i < LANES ? width - i : LANES;
            vf block[LANES];
            for (int b = 0; b < LANES; b++) block[b] = splat(0);
            for (int b = 0; b < LANES && k + b < count; b++) {
                const float *row = from + (k + b) * wide + i;
                if (columns == LANES) block[b] = *(const vf_row *)row;
                else memcpy(&block[b], row, columns * sizeof *row);
            }
            transpose(block);
            for (int b = 0; b < columns; b++) *(vf *)(to + (i + b) * to_wide + k) = block[b];
        }
}
