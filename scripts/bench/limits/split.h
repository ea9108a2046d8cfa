/* What scripts/bench/limits/native_split.py builds the native environments with: SPLIT(part) counts cycles for that part from there on. */

#ifndef PADDOCK_SPLIT_H
#define PADDOCK_SPLIT_H

#include <stdint.h>
#include <time.h>

#define LONGEST 1000000u /* cycles of a part; after more of them, another process had the core */

enum part { REST, SOLVER, POSITIONS, COLLISION, LIDAR, RESET, STARTED, PARTS };

struct split {
    uint64_t cycles[PARTS], since;
    uint64_t islands, limited_joints, single_contacts, double_contacts; /* that were solved, summed over steps */
    int part;
};

__attribute__((weak)) struct split split;

static inline uint64_t read_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* An episode starts with a step, all of which is part of the reset. */
static inline void count_cycles(int part)
{
    if (split.part == RESET && part != STARTED) return;
    uint64_t now = read_cycles();
    if (now - split.since < LONGEST) split.cycles[split.part] += now - split.since;
    split.since = now, split.part = part == STARTED ? REST : part;
}

#define SPLIT(part) count_cycles(part); COUNT_##part
#define COUNT_REST
#define COUNT_POSITIONS
#define COUNT_COLLISION
#define COUNT_LIDAR
#define COUNT_RESET
#define COUNT_STARTED
/* What there is to solve, of steps that are not part of a reset. */
#define COUNT_SOLVER \
    for (int way = 0; way < WAYS && split.part == SOLVER; way++) { \
        split.islands++; \
        for (int joint = 0; joint < JOINTS; joint++) split.limited_joints += (unsigned)islands[way].joint[joint].limited; \
        for (int body = 0; body < BODIES; body++) \
            for (int slot = 0; slot < islands[way].count[body]; slot++) { \
                int two = islands[way].contact[body][slot].two; \
                split.double_contacts += (unsigned)two, split.single_contacts += (unsigned)!two; \
            } \
    }

#endif
