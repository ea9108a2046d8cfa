/* The sets of instructions there are, by name; what is exported beside `set_of` is for library.py. */

#include <string.h>

#include "sets.h"

#define SETS 3

static const struct set *set_number(int k)
{
    return k == 0 ? baseline_set : k == 1 ? avx2_set : avx512_set;
}

int native_abi(void) { return PADDOCK_ABI; }

const struct set *find_set(const char *name)
{
    for (int k = 0; k < SETS; k++)
        if (set_number(k) && !strcmp(name, set_number(k)->name)) return set_number(k);
    return NULL;
}

/* Whether this processor has it too. */
int has_set(const char *name)
{
    const struct set *set = find_set(name);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (set && set == avx2_set) return !!__builtin_cpu_supports("avx2");
    if (set && set == avx512_set)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return set != NULL;
}

const struct task *find_task(const char *name, const char *task)
{
    const struct set *set = find_set(name);
    for (const struct task *const *own = set ? set->tasks : NULL; own && *own; own++)
        if (!strcmp(task, (*own)->name)) return *own;
    return NULL;
}

const struct set *set_of(const struct task *task)
{
    for (int k = 0; k < SETS; k++)
        for (const struct task *const *own = set_number(k) ? set_number(k)->tasks : NULL; own && *own; own++)
            if (*own == task) return set_number(k);
    return NULL;
}

void run_networks(const char *set, const struct networks *networks) { find_set(set)->run(networks); }

void run_forward(const char *set, const struct forward *forward) { find_set(set)->forward(forward); }

void apply_function(const char *set, int function, const float *x, float *y, int64_t count)
{
    find_set(set)->apply(function, x, y, count);
}
