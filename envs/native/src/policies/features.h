/* What dense networks see of rows of bytes: the numbers of envs/spaces/features.py that are not 0. */

#ifndef PADDOCK_FEATURES_H
#define PADDOCK_FEATURES_H

#include "simd/sparse.h"

enum { ONE_HOT, SCALED, LENGTH };
enum { INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64 };

/* A number in a row, and the features that it becomes; envs/spaces/sparse.py has the same fields. ONE_HOT: `size` of them,
 * of which that of start is the first. SCALED: one, divided by `by`. LENGTH: `size`, as many of which are 1 as it says. */
struct number {
    int64_t start;
    int32_t offset, first, size, kind, type; /* offset: bytes; first: feature */
    float by;
};

/* envs/native/forward.py has the same fields. */
struct features {
    const struct number *numbers; /* in the order of their features */
    const float *mean, *std;      /* of features; NULL: they are taken as they are */
    int64_t row_bytes;
    int32_t count;                /* of numbers */
    int32_t most;                 /* features of one row that may be other than 0 */
    int32_t ones;                 /* whether those are all 1; values are not written then */
    int32_t legal;                /* where it begins which choices are legal, a byte each; -1: all are */
    float clip;                   /* of normalized features, in deviations */
};

/* Write those of `count` rows one after another, and where each begins [count + 1]. */
void expand_rows(
    const struct features *features, const uint8_t *rows, int64_t count, int64_t *starts, uint16_t *index, float *value
);

/* Room for some rows' features. */
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

#endif
