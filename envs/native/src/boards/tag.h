/* Adversaries that hunt prey among obstacles: the rules are those of envs/tasks/tag.py, to the bit. */

#ifndef PADDOCK_TAG_H
#define PADDOCK_TAG_H

#include "particles.h"
#include "runtime/native.h"

#define TAG_EACH 8 /* of each kind at the most */
#define TAG_MOVING (2 * TAG_EACH)
#define TAG_BODIES (3 * TAG_EACH)
#define TAG_NUMBERS (4 + 2 * (TAG_BODIES - 1) + 2 * TAG_EACH) /* that an adversary sees, at the most */

/* envs/native/boards/worlds.py has the same fields. */
struct tag_settings {
    int32_t prey, hunters, obstacles, max_cycles;
};

struct tag {
    struct point place[TAG_BODIES], speed[TAG_MOVING]; /* hunters, prey, obstacles */
    int64_t steps;
};

int count_tag(const void *settings);
size_t width_of_tag(const void *settings);
void start_tag(
    void *group, const void *settings, struct generator *generators, unsigned mask, const struct seat_rows *rows
);
void step_tag(
    void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
);
void save_tag(const void *group, int lane, void *saved);
void load_tag(void *group, const void *settings, int lane, const void *saved);

#ifdef LANES
static const struct task tag_task = {
    .name = "tag",
    .kind = KIND_BOARD,
    .lanes = LANES,
    .actions = 1,
    .choices = 5,
    .row_bytes = TAG_NUMBERS * sizeof(float),
    .group_bytes = LANES * sizeof(struct tag),
    .saved_bytes = sizeof(struct tag),
    .seats = count_tag,
    .seat_bytes = width_of_tag,
    .start_worlds = start_tag,
    .step_worlds = step_tag,
    .save = save_tag,
    .load = load_tag,
};
#endif

#endif
