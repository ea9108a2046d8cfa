/* Lookup of instruction sets and tasks by name, and functions called by library.py. */

#include <stdlib.h>
#include <string.h>

#include "sets.h"

#define NUM_SETS 3
#define MAX_TASKS 64

static struct task registered[NUM_SETS][MAX_TASKS];
static int num_registered;

static const struct set *set_at(int k)
{
    return k == 0 ? baseline_set : k == 1 ? avx2_set : avx512_set;
}

int native_abi(void) { return PADDOCK_ABI; }

const struct set *find_set(const char *name)
{
    for (int k = 0; k < NUM_SETS; k++)
        if (set_at(k) && !strcmp(name, set_at(k)->name)) return set_at(k);
    return NULL;
}

/* Return whether an instruction set was compiled and the CPU supports it. */
int has_set(const char *name)
{
    const struct set *set = find_set(name);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (set && set == avx2_set) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (set && set == avx512_set)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return set != NULL;
}

void register_task(const struct task *task)
{
    if (num_registered == MAX_TASKS) abort();
    for (int k = 0; k < NUM_SETS; k++) {
        if (!set_at(k)) continue;
        struct task *copy = &registered[k][num_registered];
        *copy = *task;
        copy->lanes = set_at(k)->lanes, copy->group_bytes *= copy->lanes;
    }
    num_registered++;
}

static const struct task *task_at(int set, int k)
{
    for (const struct task *const *task = set_at(set)->tasks; *task; task++)
        if (!k--) return *task;
    return k < num_registered ? &registered[set][k] : NULL;
}

const struct task *find_task(const char *set, const char *name)
{
    const struct task *task;
    for (int number = 0; number < NUM_SETS; number++)
        for (int k = 0; set_at(number) && !strcmp(set, set_at(number)->name) && (task = task_at(number, k)); k++)
            if (!strcmp(name, task->name)) return task;
    return NULL;
}

const struct set *set_of(const struct task *task)
{
    const struct task *candidate;
    for (int set = 0; set < NUM_SETS; set++)
        for (int k = 0; set_at(set) && (candidate = task_at(set, k)); k++)
            if (candidate == task) return set_at(set);
    return NULL;
}

void run_networks(const char *set, const struct networks *networks) { find_set(set)->run(networks); }

void run_forward(const char *set, const struct forward *forward) { find_set(set)->forward(forward); }

void apply_function(const char *set, int function, const float *x, float *y, int64_t count)
{
    find_set(set)->apply(function, x, y, count);
}
