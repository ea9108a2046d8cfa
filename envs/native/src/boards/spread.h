/* Agents that cover landmarks: the rules are those of envs/tasks/spread.py, to the bit. */

#ifndef PADDOCK_SPREAD_H
#define PADDOCK_SPREAD_H

#include "particles.h"
#include "runtime/native.h"

#define MOST_AGENTS 16
#define AGENT_BYTES (6 * sizeof(float)) /* of what an agent sees, for each agent that there is */

/* envs/native/boards/worlds.py has the same fields. */
struct spread_settings {
    int32_t agents, max_cycles;
    double local_ratio;
};

struct spread {
    struct point place[MOST_AGENTS], speed[MOST_AGENTS], landmark[MOST_AGENTS];
    int64_t steps;
};

int count_spread(const void *settings);
size_t width_of_spread(const void *settings);
void start_spread(
    void *group, const void *settings, struct generator *generators, unsigned mask, const struct seat_rows *rows
);
void step_spread(
    void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
);
void save_spread(const void *group, int lane, void *saved);
void load_spread(void *group, const void *settings, int lane, const void *saved);

#ifdef LANES
static const struct task spread_task = {
    .name = "spread",
    .kind = KIND_BOARD,
    .lanes = LANES,
    .actions = 1,
    .choices = 5,
    .row_bytes = MOST_AGENTS * AGENT_BYTES,
    .group_bytes = LANES * sizeof(struct spread),
    .saved_bytes = sizeof(struct spread),
    .seats = count_spread,
    .seat_bytes = width_of_spread,
    .start_worlds = start_spread,
    .step_worlds = step_spread,
    .save = save_spread,
    .load = load_spread,
};
#endif

#endif
