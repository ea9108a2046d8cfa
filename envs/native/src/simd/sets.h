/* Code compiled once per instruction set. */

#pragma once

#include "runtime/native.h"
#include "policies/networks.h"
#include "policies/rollout.h"
#include "runtime/steps.h"
#include "runtime/vector.h"

struct set {
    const char *name;
    int lanes; /* floats in a register */
    const struct task *const *tasks; /* tasks that use SIMD, terminated by NULL */
    group_fn *step, *play_steps;
    play_fn *play;
    run_fn *run;
    forward_fn *forward;
    apply_fn *apply;
};

/* NULL if not compiled; the caller checks whether the CPU supports the set. */
extern const struct set *const baseline_set; /* SSE2 or NEON */
extern const struct set *const avx2_set;
extern const struct set *const avx512_set;

/* Return NULL for unknown names. */
const struct set *find_set(const char *name);
const struct task *find_task(const char *set, const char *task);
const struct set *set_of(const struct task *task);
