/* Interface of tasks, and random generators. */

#pragma once

#include <stddef.h>
#include <stdint.h>

#define PADDOCK_ABI 12 /* increased with every change of the interface to envs/native/library.py */
#define MAX_LANES 32
#define MAX_OBSERVATION 32 /* floats in an observation */
#define MAX_ACTION 8
#define MAX_AGENTS 64

/* NumPy's PCG64 with its buffered half (O'Neill 2014); reproduces numpy.random.default_rng(seed). */
struct generator {
    unsigned __int128 state, increment;
    uint32_t half, has_half;
};

void seed_generator(struct generator *generator, uint64_t seed);
double draw(struct generator *generator);                                     /* [0, 1), as Generator.random() */
double draw_uniform(struct generator *generator, double low, double high);    /* as Generator.uniform(low, high) */
int64_t draw_integer(struct generator *generator, int64_t low, int64_t high); /* [low, high), as Generator.integers */
uint32_t draw_masked(struct generator *generator, uint32_t last);             /* [0, last], as Generator.shuffle does */

/* `bitgen_t` of numpy/random/bitgen.h, the argument of NumPy's distributions. */
struct bits {
    void *generator;
    uint64_t (*next_64)(void *generator);
    uint32_t (*next_32)(void *generator);
    double (*next_double)(void *generator);
    uint64_t (*next_raw)(void *generator);
};

struct bits bits_of(struct generator *generator);

/* Settings of the classic tasks; each reads some of them. envs/native/originals.py has the same fields. */
struct classic_settings {
    double gravity, goal_velocity; /* Pendulum; MountainCar */
    int32_t sutton_barto;          /* whether CartPole's reward is 0 per step and -1 at the end */
};

struct ground;

/* Rows that a step of multi-agent environments reads and writes, one per agent; those of environment i of a group
 * start at row i * agents. `alive` and `acts` hold their values from the last step. A step writes rewards and ends of
 * agents that were alive, and observations of these and of new agents; all else is zero and must stay so. The runtime
 * clears `alive` for agents that ended, and restarts an environment that has no agent left. */
struct agent_rows {
    unsigned char *observation;
    double *reward;
    uint8_t *terminated, *truncated;
    uint8_t *alive, *acts; /* acts: awaits an action; other actions must be ignored */
};

/* A task compiled for one SIMD width. A group is the state of `lanes` environments; its memory is aligned to 64 bytes
 * and zeroed before `open`. Masks have bit i for environment i of the group; environments outside a mask are not
 * touched.
 *
 * SIMD tasks have a table for each width (tasks.h), with `start` and `step`. Observations and actions are stored by
 * lane: number k of lane i is [k * lanes + i], aligned to 64 bytes; a discrete action is a float as well.
 *
 * Other tasks are registered once for all widths (REGISTER_TASK); `group_bytes` is the state of one environment.
 * Actions and rows belong to the caller: `start_rows` and `step_rows` find each row as the last step left it, that of
 * environment i at i * `row_bytes`, and need to write only changes. Multi-agent tasks have `start_multiagent` and
 * `step_multiagent` instead, and actions have a row for each agent. */
struct task {
    const char *name;
    int lanes, observations, actions; /* lanes: a multiple of LANES; observations: floats in one, 0 for other rows */
    int choices;        /* number of discrete actions; 0: continuous */
    size_t row_bytes;   /* of observations in rows; 0: stored by lane */
    size_t group_bytes;
    size_t saved_bytes; /* saved state of one environment; library.py has the fields up to here */
    int (*open)(void *group, const void *settings); /* 0, or -1: out of memory; NULL: not needed */
    void (*close)(void *group);
    /* Start an episode in every lane of the mask, with that lane's generator, as Gymnasium's reset does. */
    void (*start)(void *group, const void *settings, struct generator *generators, unsigned mask, float *observation);
    /* Step the lanes of the mask; return those that terminated. */
    unsigned (*step)(
        void *group, const void *settings, unsigned mask, const float *action, float *observation, double *reward
    );
    void (*start_rows)(
        void *group, const void *settings, struct generator *generators, unsigned mask, unsigned char *rows
    );
    unsigned (*step_rows)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
        unsigned char *rows, double *reward
    );
    int (*agents)(const void *settings); /* 2 to MAX_AGENTS; NULL: single-agent */
    size_t (*agent_bytes)(const void *settings); /* of an agent's row, at most row_bytes; NULL: row_bytes */
    int deterministic; /* whether a multi-agent task uses no random numbers, so that generators need no seed */
    void (*start_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const struct agent_rows *rows
    );
    void (*step_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
        const struct agent_rows *rows
    );
    void (*save)(const void *group, int i, void *saved); /* NULL: copy the state */
    void (*load)(void *group, const void *settings, int i, const void *saved);
    /* For walkers, else NULL: x, y and angle of hull, leg, lower leg, leg and lower leg; and the ground. */
    void (*poses)(const void *group, int lane, float poses[5][3]);
    const struct ground *(*ground)(const void *group, int lane);
};

/* Register a task for all instruction sets. */
void register_task(const struct task *task);
#define REGISTER_TASK(task) \
    __attribute__((constructor)) static void register_##task(void) { register_task(&task); }

static inline int open_group(const struct task *task, void *group, const void *settings)
{
    return task->open ? task->open(group, settings) : 0;
}

static inline void close_group(const struct task *task, void *group)
{
    if (task->close) task->close(group);
}
