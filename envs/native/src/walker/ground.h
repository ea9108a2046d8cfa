/* Ground of the walker, generated as by Gymnasium and envs/bipedal/ground.py. */

#pragma once

#include "runtime/native.h"

enum { GROUND_PLAIN, GROUND_HARDCORE, GROUND_ENCODED, GROUND_GIVEN };

#define CORNERS 4

struct box {
    float corner[CORNERS][2]; /* m, anticlockwise from lower left */
};

/* Settings of terrain generation; envs/native/originals.py has the same fields. Intervals are [low, high]. */
struct course {
    int32_t kind;   /* GROUND_... */
    int32_t length; /* points */
    int32_t pits, stumps, stairs; /* whether there are any, for GROUND_ENCODED */
    int32_t stump_width[2], stump_float[2], stair_width[2], stair_steps[2];
    double roughness, pit_gap[2], stump_height[2], stair_height[2];
    int32_t given_boxes, scenery; /* scenery: random numbers that GROUND_GIVEN skips before the initial push */
    const double *given_x, *given_y; /* [length], for GROUND_GIVEN */
    const double *given_corners;     /* [given_boxes, CORNERS, 2] */
};

struct ground {
    int32_t length, boxes, capacity; /* capacity: boxes allocated */
    float *x, *y;                /* [length] m, ascending in x except for the last points of pits */
    struct box *box;             /* [boxes] */
};


int open_ground(struct ground *ground, int length); /* 0, or -1: out of memory */
void close_ground(struct ground *ground);

/* Generate ground and skip the scenery; the next random number is the initial push. Return -1 if out of memory. */
int generate_ground(struct ground *ground, const struct course *course, struct generator *generator);
