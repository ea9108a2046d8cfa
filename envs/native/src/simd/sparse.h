/* Sparse rows in compressed form. */

#pragma once

#include <stdint.h>

/* R rows (CSR); envs/spaces/sparse.py has the same fields. */
struct sparse {
    const int64_t *starts; /* [R + 1], offset of each row */
    const uint16_t *index; /* columns, ascending in each row */
    const float *value;    /* NULL: all are 1 */
};
