/* Task interface and random number generators. */

#pragma once

#include <stddef.h>
#include <stdint.h>

#define PADDOCK_ABI 13 /* increment with every change to the interface used by envs/native/library.py */
#define MAX_LANES 32
#define MAX_OBSERVATION 32 /* floats per observation */
#define MAX_ACTION 8
#define MAX_AGENTS 64

/* NumPy's PCG64 (O'Neill 2014) with a buffered 32-bit half; gives the numbers of numpy.random.default_rng(seed). */
struct generator {
    unsigned __int128 state, increment;
    uint32_t half, has_half;
};

void seed_generator(struct generator *generator, uint64_t seed);
double draw(struct generator *generator);                                     /* [0, 1), as Generator.random() */
double draw_uniform(struct generator *generator, double low, double high);    /* as Generator.uniform(low, high) */
int64_t draw_integer(struct generator *generator, int64_t low, int64_t high); /* [low, high), as Generator.integers */
uint32_t draw_masked(struct generator *generator, uint32_t last);             /* [0, last], as in Generator.shuffle */

/* Settings of the classic control tasks, each of which uses some. Keep in sync with envs/native/originals.py. */
struct classic_settings {
    double gravity, goal_velocity; /* Pendulum; MountainCar */
    int32_t sutton_barto;          /* whether CartPole's reward is 0 per step and -1 at the end */
};

struct ground;

/* Inputs and outputs of a multi-agent step, one row per agent. Rows of environment i of a group start at i * agents.
 * `alive` and `acts` keep their values between steps. A step writes the rewards and end flags of live agents, and the
 * observations of these and of new agents. All other entries are zero and must stay zero. The runtime clears `alive`
 * when an agent's episode ends, and restarts an environment without live agents. */
struct agent_rows {
    unsigned char *observation;
    double *reward;
    uint8_t *terminated, *truncated;
    uint8_t *alive, *acts; /* acts: the agent acts in the next step; actions of others must be ignored */
};

/* A task compiled for one SIMD width. A group is the state of `lanes` environments; its memory is aligned to 64 bytes
 * and zeroed before `open`. Bit i of a mask selects environment i of the group; other environments are left unchanged.
 *
 * SIMD tasks have a table for each width (tasks.h) and implement `start` and `step`. Observations and actions are
 * stored by lane: element k of lane i is at [k * lanes + i], aligned to 64 bytes. Discrete actions are floats, too.
 *
 * Other tasks are registered once for all widths (REGISTER_TASK), and `group_bytes` is one environment's state size.
 * They implement `start_rows` and `step_rows`. The caller owns actions and observation rows; row i, at i * `row_bytes`,
 * still has the last observation of environment i, so only changes need to be written. Multi-agent tasks implement
 * `start_multiagent` and `step_multiagent` instead, with one action row per agent. */
struct task {
    const char *name;
    int lanes, observations, actions; /* lanes: a multiple of LANES; observations: floats each, 0 for byte rows */
    int choices;        /* number of discrete actions; 0 for continuous actions */
    size_t row_bytes;   /* bytes per observation row; 0 if stored by lane */
    size_t group_bytes;
    size_t saved_bytes; /* saved state of one environment; library.py declares the fields up to this one */
    int (*open)(void *group, const void *settings); /* return 0, or -1 if out of memory; may be NULL */
    void (*close)(void *group);
    /* Start an episode in each lane of the mask with the generator of the lane, like Gymnasium's reset. */
    void (*start)(void *group, const void *settings, struct generator *generators, unsigned mask, float *observation);
    /* Step the lanes of the mask; return a mask of the lanes that terminated. */
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
    int (*agents)(const void *settings); /* number of agents, 2 to MAX_AGENTS; NULL: single-agent */
    size_t (*agent_bytes)(const void *settings); /* size of an agent's row, at most row_bytes; NULL: row_bytes */
    int deterministic; /* whether a multi-agent task uses no random numbers and needs no seeds */
    void (*start_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const struct agent_rows *rows
    );
    void (*step_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
        const struct agent_rows *rows
    );
    void (*save)(const void *group, int i, void *saved); /* NULL: the state is copied */
    void (*load)(void *group, const void *settings, int i, const void *saved);
    /* Walkers only, else NULL: x, y and angle of the hull and of both legs (leg, lower leg); and the ground. */
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
