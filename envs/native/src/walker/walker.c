/* What a picture of a walker is drawn from, and what its fingerprint is of. */

#include "ground.h"
#include "runtime/vector.h"

/* Where the bodies of an environment's walker are; 0, or -1: it is no walker. */
int walker_poses(const struct vector *vector, int environment, float poses[5][3])
{
    const struct task *task = vector->task;
    if (task->poses == NULL) return -1;
    const int group = environment / vector->places;
    task->poses(vector->groups + vector->stride * (size_t)group, environment % vector->places, poses);
    return 0;
}

/* The ground under it, until its next episode; NULL: it is no walker. */
const struct ground *walker_ground(const struct vector *vector, int environment)
{
    const struct task *task = vector->task;
    if (task->ground == NULL) return NULL;
    const int group = environment / vector->places;
    return task->ground(vector->groups + vector->stride * (size_t)group, environment % vector->places);
}

#define POINTS 48
#define RECORDED_STEP (14 / 30.0)
#define RECORDED_HEIGHT (100 / 30.0)

/* Walkers stand, stumble and fall on broken ground and among boxes; then they look at obstacles of every other kind. */
uint64_t fingerprint_walkers(const struct task *task)
{
    static const double bumps[] = {0, 0.125, -0.0625, 0.1875, 0.0625, -0.125};
    static const double boxes[][4] = { /* left, bottom, right, top: from the middle of the start pad, and the ground */
        {-3, -0.5, -2, 0.5}, {-1.5, -0.25, -0.875, 0.125}, {-0.125, -0.5, 0.375, 0.1875}, {0.75, -0.5, 1.25, 1.75},
        {1.5, -0.5, 2, 0.75}, {2, -0.5, 3, 1},
    };
    enum { BOXES = sizeof boxes / sizeof *boxes };
    double x[POINTS], y[POINTS], corners[BOXES][CORNERS][2];
    for (int i = 0; i < POINTS; i++) x[i] = i * RECORDED_STEP, y[i] = RECORDED_HEIGHT + bumps[i % (sizeof bumps / sizeof *bumps)];
    for (int i = 0; i < BOXES; i++)
        for (int k = 0; k < CORNERS; k++) {
            corners[i][k][0] = RECORDED_STEP * 10 + boxes[i][k == 1 || k == 2 ? 2 : 0];
            corners[i][k][1] = RECORDED_HEIGHT + boxes[i][k < 2 ? 1 : 3];
        }
    const struct course given = {
        .kind = GROUND_GIVEN, .length = POINTS, .given_boxes = BOXES, .given_x = x, .given_y = y,
        .given_corners = &corners[0][0][0],
    };
    const struct course hardcore = {.kind = GROUND_HARDCORE, .length = POINTS};
    const struct course encoded = {
        .kind = GROUND_ENCODED, .length = POINTS, .pits = 1, .stumps = 1, .stairs = 1, .stump_width = {1, 2},
        .stump_float = {0, 1}, .stair_width = {4, 5}, .stair_steps = {1, 3}, .roughness = 2, .pit_gap = {0.25, 0.75},
        .stump_height = {0.25, 0.5}, .stair_height = {0.25, 0.5},
    };
    uint64_t hashed = play_recorded(task, &given, 18, 0, 1);
    if (hashed) hashed = play_recorded(task, &hardcore, 2, 0, hashed);
    return hashed ? play_recorded(task, &encoded, 2, 0, hashed) : 0;
}
