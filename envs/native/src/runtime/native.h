/* What every task family promises, and what a vector of environments is made of. */

#ifndef PADDOCK_NATIVE_H
#define PADDOCK_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#define PADDOCK_ABI 12 /* goes up with every change that envs/native/library.py must know of */
#define MAX_LANES 32
#define MAX_OBSERVATION 32 /* floats in a row of any task */
#define MAX_ACTION 8
#define MAX_AGENTS 64 /* of a world */

/* NumPy's PCG64 with its buffered half (O'Neill 2014): the same draws as numpy.random.default_rng(seed). */
struct generator {
    unsigned __int128 state, increment;
    uint32_t half, has_half;
};

void seed_generator(struct generator *generator, uint64_t seed);
double draw(struct generator *generator);                                    /* [0, 1), as Generator.random() */
double draw_uniform(struct generator *generator, double low, double high);   /* as Generator.uniform(low, high) */
int64_t draw_integer(struct generator *generator, int64_t low, int64_t high); /* [low, high), as Generator.integers */
uint32_t draw_masked(struct generator *generator, uint32_t last);             /* [0, last], as Generator.shuffle does */

/* What a distribution of NumPy's own draws from: `bitgen_t` of numpy/random/bitgen.h. */
struct bits {
    void *generator;
    uint64_t (*next_64)(void *generator);
    uint32_t (*next_32)(void *generator);
    double (*next_double)(void *generator);
    uint64_t (*next_raw)(void *generator);
};

struct bits bits_of(struct generator *generator);

/* Of the classic tasks, each of which reads what concerns it; envs/native/originals.py has the same fields. */
struct classic_settings {
    double gravity, goal_velocity; /* of the pendulum; of the cars */
    int32_t sutton_barto;          /* whether CartPole pays 0 for a step and -1 for the end */
};

struct ground;

/* What a step of worlds reads and writes, a row for each seat: those of environment i of a group begin `seats` times i rows
 * behind those of the first. Who lives and who acts is as the last step left it. A step enters a reward and an end of those
 * who live alone, and an observation of theirs and of those it has live from now on; all else of these rows is zero before,
 * and stays so. Who ends need not be taken out of the living: the runtime does, and begins a world anew where nobody is
 * left. */
struct agent_rows {
    unsigned char *observation;
    double *reward;
    uint8_t *terminated, *truncated;
    uint8_t *alive, *acts; /* acts: awaits an action; those of a seat that does not are never to be looked at */
};

/* One task at one width. A group is the state of `lanes` environments; its memory is aligned to 64 bytes and zeroed
 * before `open`. Masks have bit i for environment i of the group. What is outside a mask is neither read nor changed.
 *
 * Tasks that step in SIMD have a table for each width (tasks.h), `start` and `step`. Observations and actions lie lane by
 * lane: row k of lane i is [k * lanes + i], aligned to 64 bytes, and a choice is a float as well.
 *
 * All others are registered (REGISTER_TASK), once for every width: an environment has `group_bytes` of the group. Choices
 * and rows are the caller's: `start_rows` and `step_rows` find each row as the last step left it, those of environment i
 * `row_bytes` times i behind the first, and may write only what changes. Where an environment has several seats, it is a
 * world: `start_multiagent` and `step_multiagent` stand for them, and choices have a row for each seat. */
struct task {
    const char *name;
    int lanes, observations, actions; /* lanes: LANES, or a multiple of it; observations: floats of one, 0 of other rows */
    int choices;        /* of a discrete action; 0: continuous */
    size_t row_bytes;   /* of observations in rows; 0: they lie in lanes */
    size_t group_bytes;
    size_t saved_bytes; /* what is saved of one environment; library.py has all up to here */
    int (*open)(void *group, const void *settings); /* 0, or -1: no memory; NULL: there is nothing to open, nor to close */
    void (*close)(void *group);
    /* Begin an episode in every lane of the mask, drawing from that lane's generator as Gymnasium's reset does. */
    void (*start)(void *group, const void *settings, struct generator *generators, unsigned mask, float *observation);
    /* Step the lanes of the mask; returns those that terminated. */
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
    int (*seats)(const void *settings); /* 2 to MAX_AGENTS; NULL: one */
    size_t (*seat_bytes)(const void *settings); /* of a row in such a world, row_bytes at the most; NULL: just those */
    int deterministic; /* whether nothing is ever drawn in a world, so that generators need no seed */
    void (*start_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const struct agent_rows *rows
    );
    void (*step_multiagent)(
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
        const struct agent_rows *rows
    );
    void (*save)(const void *group, int i, void *saved); /* NULL: an environment's state is copied as it is */
    void (*load)(void *group, const void *settings, int i, const void *saved);
    /* Of walkers, else NULL: x, y and angle of hull, leg, lower leg, leg and lower leg; and the ground. */
    void (*poses)(const void *group, int lane, float poses[5][3]);
    const struct ground *(*ground)(const void *group, int lane);
};

/* Enter a task for every set of instructions, with its lanes. */
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

#endif
