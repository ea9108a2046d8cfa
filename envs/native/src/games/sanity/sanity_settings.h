/* What a task of the sanity suite is told. */

#ifndef PADDOCK_SANITY_SETTINGS_H
#define PADDOCK_SANITY_SETTINGS_H

#include "runtime/native.h"

/* Each task reads what concerns it; envs/native/games/sanity.py has the same fields. */
struct sanity_settings {
    double offset, leave, stay, noise, end;
    const double *rewards; /* [steps + 1, steps + 1, 2] of Stochastic, by how many moves there were, how many of them 0, and the
                            * last one; of others NULL */
    double (*normal)(struct bits *);             /* NumPy's own, of Bandit */
    int64_t (*geometric)(struct bits *, double); /* the same, of Forget */
    int32_t arm, zeros, delay, digits, steps, terminates;
    uint32_t password; /* bit k: of the k-th step */
};

#endif
