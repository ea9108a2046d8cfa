/* What scripts/bench/limits/native_split.py asks of the processor and the compiler: see there. Compiled with LANES and PADDOCK_SPLIT. */

#include <math.h>

#include "simd/lanes.h"
#include "physics/solver.h"

#define CHAINS 12 /* of operations that wait for nothing but the last one of their own */

/* One velocity iteration's share of a joint or contact, as instructions to be counted. */
void free_joint(struct island *island, const struct model *model)
{
    island->joint[0].limited = 0;
    solve_joint(island, model, 0);
}

void limited_joint(struct island *island, const struct model *model)
{
    island->joint[0].limited = 1;
    solve_joint(island, model, 0);
}

void single_contact(struct island *island, const struct model *model)
{
    island->contact[0][0].two = 0;
    solve_contact(island, model, 0, 0);
}

void double_contact(struct island *island, const struct model *model)
{
    island->contact[0][0].two = 1;
    solve_contact(island, model, 0, 0);
}

/* Cycles that `rounds` times CHAINS vector operations take, multiplications and additions in equal numbers. */
uint64_t measure_peak(int64_t rounds, float one, float *sums)
{
    vf x[CHAINS];
    for (int k = 0; k < CHAINS; k++) x[k] = splat((float)k);
    uint64_t start = read_cycles();
    for (int64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < CHAINS; k += 2) x[k] = x[k] * one, x[k + 1] = x[k + 1] + one;
    }
    uint64_t cycles = read_cycles() - start;
    for (int k = 0; k < CHAINS; k++) sums[k] = x[k][0];
    return cycles;
}
