/* A vector of environments: groups of one task, and the caller's arrays that they read and write. */

#ifndef PADDOCK_VECTOR_H
#define PADDOCK_VECTOR_H

#include "native.h"

/* The caller's arrays, with a row for every environment: `Arrays` of envs/vector/table.py. */
struct rows {
    float *observation, *final;      /* [N, O] */
    const void *action;              /* [N, A] float, or [N] int64_t choices */
    double *reward;                  /* [N] */
    uint8_t *terminated, *truncated; /* [N] */
    double *running_return;          /* [N] of the running episode */
    int64_t *running_length;         /* [N] */
    double *final_return;            /* [N] of an episode that ended in the step */
    int64_t *final_length;           /* [N] */
    int64_t *episode;                /* [N] number of the running episode */
};

struct vector;
struct crew;

/* What a call does to groups `first` up to `last`; `job` is its own. */
typedef void part(const struct vector *vector, const void *job, int first, int last);

struct vector {
    const struct task *task;
    const void *settings; /* the caller's */
    part *step;           /* of the task's width; its job is a struct step */
    unsigned char *groups;
    size_t stride; /* bytes from one group to the next */
    struct generator *generators; /* [num_groups, lanes] */
    int num_envs, num_groups, time_limit, same_step;
    int keyed; /* whether restarts are seeded with `key` */
    int64_t key;
    struct crew *crew; /* NULL where the caller works alone */
};

struct step {
    const uint8_t *chosen; /* [N], or NULL: all */
    const struct rows *rows;
};

/* The lanes of a group that have an environment, and that `chosen` picks. */
unsigned lanes_of(const struct vector *vector, int group, const uint8_t *chosen);

/* Note what the episodes of these lanes ended with, and start the next ones. */
void restart_lanes(const struct vector *vector, int group, unsigned mask, const struct rows *rows);

/* Threads that work on one vector's calls; NULL: no memory. They begin when they are first needed. */
struct crew *open_crew(int threads);
void close_crew(struct crew *crew);
/* Have groups 0 up to vector->num_groups done, by the caller too; returns when all are. */
void share_groups(const struct vector *vector, part *part, const void *job);

#endif
