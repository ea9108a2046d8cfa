/* What a task of the sanity suite is told. */

#ifndef PADDOCK_SANITY_SETTINGS_H
#define PADDOCK_SANITY_SETTINGS_H

#include <stdint.h>

/* Each task reads what concerns it; envs/native/games/sanity.py has the same fields. */
struct sanity_settings {
    double offset, leave, stay;
    const double *rewards; /* [steps + 1, steps + 1, 2] of Stochastic, by how many moves there were, how many of them 0, and the
                            * last one; of others NULL */
    int32_t arm, zeros, delay, digits, steps, terminates;
    uint32_t password; /* bit k: of the k-th step */
};

#endif
