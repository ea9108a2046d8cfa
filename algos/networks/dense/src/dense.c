/* Exported lookup of the functions for an instruction set, which the processor must support. */

#include <string.h>

#include "dense.h"

const struct dense_set *find_dense(const char *name)
{
    const struct dense_set *const sets[] = {baseline_dense, avx2_dense, avx512_dense};
    for (int k = 0; k < 3; k++)
        if (sets[k] && !strcmp(name, sets[k]->name)) return sets[k];
    return 0;
}

int native_abi(void) { return DENSE_ABI; }
