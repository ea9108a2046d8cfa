/* Games whose observations are rows of bytes, one environment after another: what is left to write of one are its state
 * `struct GAME` and four functions,
 *
 *   begin_GAME(state, settings, generator)                   where an episode begins
 *   play_GAME(state, settings, generator, choice, &reward)   whether it is over
 *   show_GAME(state, settings, row)                          every byte of its row
 *   mend_GAME(state, settings)                               what was not saved by this code is made one to go on from
 *
 * and BYTE_GAME makes those of `struct task` of them. */

#ifndef PADDOCK_GAME_H
#define PADDOCK_GAME_H

#include <string.h>

#include "runtime/native.h"

static inline int bounded(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

#define BYTE_GAME_DECLARED(game)                                                                                       \
    void start_##game(void *, const void *, struct generator *, unsigned, unsigned char *);                            \
    unsigned step_##game(                                                                                              \
        void *, const void *, struct generator *, unsigned, const int64_t *, unsigned char *, double *                 \
    );                                                                                                                 \
    void save_##game(const void *, int, void *);                                                                       \
    void load_##game(void *, const void *, int, const void *);

#define BYTE_GAME(game, bytes)                                                                                         \
    void start_##game(                                                                                                 \
        void *group, const void *settings, struct generator *generators, unsigned mask, unsigned char *rows            \
    )                                                                                                                  \
    {                                                                                                                  \
        struct game *state = group;                                                                                    \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            begin_##game(state + i, settings, generators + i);                                                         \
            show_##game(state + i, settings, rows + (size_t)i * (bytes));                                              \
        }                                                                                                              \
    }                                                                                                                  \
    unsigned step_##game(                                                                                              \
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,         \
        unsigned char *rows, double *reward                                                                            \
    )                                                                                                                  \
    {                                                                                                                  \
        struct game *state = group;                                                                                    \
        unsigned ended = 0;                                                                                            \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            const int over = play_##game(state + i, settings, generators + i, (int)choice[i], reward + i);             \
            ended |= (unsigned)over << i;                                                                              \
            show_##game(state + i, settings, rows + (size_t)i * (bytes));                                              \
        }                                                                                                              \
        return ended;                                                                                                  \
    }                                                                                                                  \
    void save_##game(const void *group, int lane, void *saved)                                                         \
    {                                                                                                                  \
        memcpy(saved, (const struct game *)group + lane, sizeof(struct game));                                         \
    }                                                                                                                  \
    void load_##game(void *group, const void *settings, int lane, const void *saved)                                   \
    {                                                                                                                  \
        struct game *state = (struct game *)group + lane;                                                              \
        memcpy(state, saved, sizeof *state);                                                                           \
        mend_##game(state, settings);                                                                                  \
    }

#define BYTE_GAME_TASK(game, most_choices, bytes)                                                                      \
    static const struct task game##_task = {                                                                           \
        .name = #game,                                                                                                 \
        .kind = KIND_GAME,                                                                                             \
        .lanes = LANES,                                                                                                \
        .actions = 1,                                                                                                  \
        .choices = most_choices,                                                                                       \
        .row_bytes = bytes,                                                                                            \
        .group_bytes = LANES * sizeof(struct game),                                                                    \
        .saved_bytes = sizeof(struct game),                                                                            \
        .start_rows = start_##game,                                                                                    \
        .step_rows = step_##game,                                                                                      \
        .save = save_##game,                                                                                           \
        .load = load_##game,                                                                                           \
    };

#endif
