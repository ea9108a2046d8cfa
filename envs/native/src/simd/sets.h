/* What is compiled once for each set of instructions. */

#ifndef PADDOCK_SETS_H
#define PADDOCK_SETS_H

#include "runtime/native.h"
#include "policies/networks.h"
#include "policies/rollout.h"
#include "runtime/steps.h"
#include "runtime/vector.h"

struct set {
    const char *name;
    int lanes; /* floats of a register */
    const struct task *const *tasks; /* those that step in SIMD, ended by a NULL */
    part *step, *play_steps;
    play_part *play;
    run_part *run;
    forward_part *forward;
    apply_part *apply;
};

/* NULL where the compiler has not got the set; whether the processor has it is for the caller to ask. */
extern const struct set *const baseline_set; /* what every processor of the kind has: SSE2, NEON */
extern const struct set *const avx2_set;
extern const struct set *const avx512_set;

/* NULL: there is none of the name. */
const struct set *find_set(const char *name);
const struct task *find_task(const char *set, const char *task);
const struct set *set_of(const struct task *task);

#endif
