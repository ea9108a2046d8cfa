/* Rows of numbers of which almost all are 0: the others, and which they are. */

#ifndef PADDOCK_SPARSE_H
#define PADDOCK_SPARSE_H

#include <stdint.h>

/* R rows in compressed form (CSR); envs/spaces/sparse.py has the same. */
struct sparse {
    const int64_t *starts; /* [R + 1], where each row's numbers begin */
    const uint16_t *index; /* which they are, rising in each row */
    const float *value;    /* NULL: all are 1 */
};

#endif
