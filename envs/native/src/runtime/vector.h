/* Vector of environments: groups of one task that read and write the caller's arrays. */

#pragma once

#include "native.h"

/* The caller's arrays, `Arrays` of envs/vector/table.py, with a row for each environment, or each agent if
 * multi-agent. */
struct rows {
    unsigned char *observation, *final; /* [N, O] float, or [N] rows of bytes */
    const void *action;              /* [N, A] float, or [N] int64_t */
    double *reward;                  /* [N] */
    uint8_t *terminated, *truncated; /* [N] */
    double *running_return;          /* [N] of the running episode */
    int64_t *running_length;         /* [N] */
    double *final_return;            /* [N] of episodes that ended in the step */
    int64_t *final_length;           /* [N] */
    int64_t *episode;                /* [N / agents] index of the running episode */
    uint8_t *alive, *acts;           /* [N] if multi-agent; acts: the next step takes the agent's action */
    uint8_t *over;                   /* [N / agents] if multi-agent: the episode ended in the step */
};

struct vector;
struct thread_pool;

/* Function that processes groups `first` to `last` - 1; `job` is its argument. */
typedef void group_fn(const struct vector *vector, const void *job, int first, int last);

struct vector {
    const struct task *task;
    const void *settings; /* the caller's */
    group_fn *step;           /* for the task's SIMD width; its job is a struct step */
    unsigned char *groups;
    size_t stride; /* bytes from one group to the next */
    struct generator *generators; /* [num_groups, group_size] */
    int64_t *clock; /* [num_envs] steps of the running episodes if multi-agent, else NULL */
    int num_envs, num_groups, time_limit, same_step;
    int agents; /* rows of an environment */
    size_t row_bytes; /* of an observation */
    int group_size; /* environments in a group: the task's lanes, or fewer so that all threads have work */
    int keyed; /* whether restarts are seeded from `key` */
    int64_t key;
    struct thread_pool *pool; /* NULL with one thread */
};

struct step {
    const uint8_t *chosen; /* [N], or NULL: all */
    const struct rows *rows;
};

/* Return NULL if out of memory. The settings must outlive the vector; time_limit: steps, 0 for none; same_step:
 * autoreset. */
struct vector *vector_open(
    const struct task *task, int num_envs, const void *settings, int time_limit, int same_step, int threads
);
void vector_close(struct vector *vector);
/* Start an episode in every environment, seeded from (key, environment, episode). */
int vector_begin(struct vector *vector, int64_t key, const int64_t *numbers, const struct rows *rows);
/* Step the chosen environments, or all; return -1, or the first row with an invalid action (then none has stepped). */
int64_t vector_step(struct vector *vector, const uint8_t *chosen, const struct rows *rows);
/* Save a state that any SIMD width can load; the caller saves the rows. */
size_t vector_saved_bytes(const struct vector *vector);
void vector_save(const struct vector *vector, void *saved);

/* Return the lanes of a group that hold an environment selected by `chosen`. */
unsigned lanes_of(const struct vector *vector, int group, const uint8_t *chosen);

/* Record the ends of the episodes in these lanes, and start the next ones. */
void restart_lanes(const struct vector *vector, int group, unsigned mask, const struct rows *rows);

/* Start the next episodes of multi-agent environments, whose ends are recorded already. */
void restart_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows);
/* Start an episode in these multi-agent environments with their generators. */
void start_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows);
/* Return the rows of an environment and of those after it. */
struct agent_rows agent_rows_at(const struct vector *vector, const struct rows *rows, size_t env);
/* Seed an environment's generator from (the vector's key, environment, episode). */
void seed_keyed(const struct vector *vector, int env, int64_t episode);

/* Thread pool of one vector, started at the first call; NULL if out of memory. */
struct thread_pool *open_thread_pool(int threads);
void close_thread_pool(struct thread_pool *pool);
/* Process all groups, in the calling thread too; return when done. */
void share_groups(const struct vector *vector, group_fn *function, const void *job);
