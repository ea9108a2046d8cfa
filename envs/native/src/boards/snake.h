/* Snakes on one field: the rules are those of envs/tasks/snake.py, to the bit. */

#ifndef PADDOCK_SNAKE_H
#define PADDOCK_SNAKE_H

#include "games/game.h"
#include "runtime/native.h"

#define SIGHT 5                 /* cells that a snake sees in each direction */
#define SEEN (2 * SIGHT + 1)    /* a side of what it sees */
#define SNAKE_SIDE 32           /* cells of a field's side at the most */
#define MOST_SNAKES 16
#define MOST_LENGTH 32
#define SNAKE_CELLS ((SNAKE_SIDE + 2 * SIGHT) * (SNAKE_SIDE + SIGHT) + SIGHT)

/* envs/native/boards/snake.py has the same fields. */
struct snake_settings {
    int32_t snakes, width, height, food, longest, absence, max_steps;
};

struct snake {
    uint16_t body[MOST_LENGTH]; /* where in `cells`, the tail at `tail` and what is before it behind, round and round */
    uint8_t tail, length;       /* length 0: it does not live */
    uint16_t away;              /* steps until it is back */
};

/* Row y of the field begins at cells[(y + SIGHT) * (width + SIGHT) + SIGHT]: the wall on the right of one row is the one
 * on the left of the next. */
struct snakes {
    int32_t steps;
    struct snake snake[MOST_SNAKES];
    uint8_t cells[SNAKE_CELLS];
};

int count_snakes(const void *settings);
void start_snakes(
    void *group, const void *settings, struct generator *generators, unsigned mask, const struct seat_rows *rows
);
void step_snakes(
    void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
);
void save_snakes(const void *group, int lane, void *saved);
void load_snakes(void *group, const void *settings, int lane, const void *saved);

#ifdef LANES
static const struct task snake_task = {
    .name = "snake",
    .kind = KIND_BOARD,
    .lanes = LANES,
    .actions = 1,
    .choices = 4,
    .row_bytes = SEEN * SEEN,
    .group_bytes = LANES * sizeof(struct snakes),
    .saved_bytes = sizeof(struct snakes),
    .seats = count_snakes,
    .start_worlds = start_snakes,
    .step_worlds = step_snakes,
    .save = save_snakes,
    .load = load_snakes,
};
#endif

#endif
