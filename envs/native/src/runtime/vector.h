/* A vector of environments: groups of one task, and the caller's arrays that they read and write. */

#ifndef PADDOCK_VECTOR_H
#define PADDOCK_VECTOR_H

#include "native.h"

/* The caller's arrays, with a row for every environment, or seat of a world: `Arrays` of envs/vector/table.py. */
struct rows {
    unsigned char *observation, *final; /* [N, O] float, or [N] rows of bytes */
    const void *action;              /* [N, A] float, or [N] int64_t choices */
    double *reward;                  /* [N] */
    uint8_t *terminated, *truncated; /* [N] */
    double *running_return;          /* [N] of the running episode */
    int64_t *running_length;         /* [N] */
    double *final_return;            /* [N] of an episode that ended in the step */
    int64_t *final_length;           /* [N] */
    int64_t *episode;                /* [N / seats] number of the running episode */
    uint8_t *alive, *acts;           /* [N] of worlds: who lives, and whose action the next step takes */
    uint8_t *over;                   /* [N / seats] of worlds: which ended in the step */
};

struct vector;
struct thread_pool;

/* What a call does to groups `first` up to `last`; `job` is its own. */
typedef void part(const struct vector *vector, const void *job, int first, int last);

struct vector {
    const struct task *task;
    const void *settings; /* the caller's */
    part *step;           /* of the task's width; its job is a struct step */
    unsigned char *groups;
    size_t stride; /* bytes from one group to the next */
    struct generator *generators; /* [num_groups, group_size] */
    int64_t *clock; /* [num_envs] steps of the running episodes of worlds; NULL: of one seat, whose rows count them */
    int num_envs, num_groups, time_limit, same_step;
    int seats;  /* rows of an environment */
    size_t row_bytes; /* of an observation */
    int group_size; /* environments in a group: the task's lanes, or fewer where threads would have none */
    int keyed; /* whether restarts are seeded with `key` */
    int64_t key;
    struct thread_pool *pool; /* NULL where the caller works alone */
};

struct step {
    const uint8_t *chosen; /* [N], or NULL: all */
    const struct rows *rows;
};

/* NULL: no memory. The settings are the caller's; time_limit: steps, 0 for none; same_step: ended episodes restart. */
struct vector *vector_open(
    const struct task *task, int num_envs, const void *settings, int time_limit, int same_step, int threads
);
void vector_close(struct vector *vector);
/* Begin an episode everywhere, on the seed of (key, environment, number of the episode). */
int vector_begin(struct vector *vector, int64_t key, const int64_t *numbers, const struct rows *rows);
/* Step the chosen environments, or all; -1, or the first environment whose action is none: then none has stepped. */
int64_t vector_step(struct vector *vector, const uint8_t *chosen, const struct rows *rows);
/* What goes on where this vector is, whatever the width; what the rows have is for the caller to keep. */
size_t vector_saved_bytes(const struct vector *vector);
void vector_save(const struct vector *vector, void *saved);

/* The lanes of a group that have an environment, and that `chosen` picks. */
unsigned lanes_of(const struct vector *vector, int group, const uint8_t *chosen);

/* Note what the episodes of these lanes ended with, and start the next ones. */
void restart_lanes(const struct vector *vector, int group, unsigned mask, const struct rows *rows);

/* The same of worlds that are over, of which the rows are blank already. */
void restart_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows);
/* Begin an episode in these worlds, whose generators are where they should be. */
void start_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows);
/* The rows of a world, and of those behind it. */
struct agent_rows agent_rows_at(const struct vector *vector, const struct rows *rows, size_t world);
/* Have the generator begin on the seed of (the vector's key, environment, number of its episode). */
void seed_keyed(const struct vector *vector, int env, int64_t episode);

/* Threads that work on one vector's calls; NULL: no memory. They begin when they are first needed. */
struct thread_pool *open_thread_pool(int threads);
void close_thread_pool(struct thread_pool *pool);
/* Have groups 0 up to vector->num_groups done, by the caller too; returns when all are. */
void share_groups(const struct vector *vector, part *part, const void *job);

#endif
