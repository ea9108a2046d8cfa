/* MiniGrid's tasks; those whose agent can but turn and go have three choices. */

#ifndef PADDOCK_MINIGRID_H
#define PADDOCK_MINIGRID_H

#include "games/game.h"
#include "grid.h"

#define GRID_TASK(which, most_choices)                                                                                 \
    static const struct task which##_task = {                                                                          \
        .name = #which,                                                                                                \
        .kind = KIND_GRID,                                                                                             \
        .lanes = LANES,                                                                                                \
        .actions = 1,                                                                                                  \
        .choices = most_choices,                                                                                       \
        .row_bytes = GRID_ROW,                                                                                         \
        .group_bytes = LANES * sizeof(struct grid),                                                                    \
        .saved_bytes = sizeof(struct grid),                                                                            \
        .start_rows = start_grids,                                                                                     \
        .step_rows = step_grids,                                                                                       \
        .save = save_grid,                                                                                             \
        .load = load_grid,                                                                                             \
    };

GRID_TASK(minigrid, 7)
GRID_TASK(minigrid_moves, 3)

#endif
