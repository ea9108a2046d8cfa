/* Non-zero features of rows of bytes, as in envs/spaces/features.py. */

#pragma once

#include "simd/sparse.h"

enum { ONE_HOT, SCALED, LENGTH };
enum { INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64 };

/* A number in a row and its features; envs/spaces/sparse.py has the same fields. ONE_HOT: `size` features, the first
 * for the value `start`. SCALED: one feature, the number divided by `by`. LENGTH: `size` features, the first `number`
 * are 1. */
struct number {
    int64_t start;
    int32_t offset, first, size, kind, type; /* offset: bytes; first: feature */
    float by;
};

/* envs/native/forward.py has the same fields. */
struct features {
    const struct number *numbers; /* ordered by feature */
    const float *mean, *std;      /* of features; NULL: no normalization */
    int64_t row_bytes;
    int32_t count;                /* of numbers */
    int32_t most;                 /* maximum of non-zero features in a row */
    int32_t ones;                 /* whether all of them are 1; values are omitted then */
    int32_t legal;                /* offset of the action mask, a byte per action; -1: none */
    float clip;                   /* of normalized features, in standard deviations */
};

/* Write the features of `count` rows, and the offset of each row [count + 1]. */
void expand_rows(
    const struct features *features, const uint8_t *rows, int64_t count, int64_t *starts, uint16_t *index, float *value
);

/* Buffers for the features of some rows. */
struct expanded {
    int64_t *starts;
    uint16_t *index;
    float *value;
};

int open_expanded(struct expanded *expanded, const struct features *features, int rows); /* 0, or -1: no memory */
void close_expanded(struct expanded *expanded);
struct sparse expand_some(
    const struct expanded *expanded, const struct features *features, const uint8_t *rows, int count
);
