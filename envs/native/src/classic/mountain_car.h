/* MountainCar-v0 (Moore 1990) and MountainCarContinuous-v0. */

#pragma once

#include "classic.h"

#define CAR_LEFT (-1.2)
#define CAR_RIGHT 0.6
#define CAR_SPEED 0.07
#define CAR_GRAVITY 0.0025
#define CAR_FORCE 0.001
#define CAR_GOAL 0.5
#define CAR_POWER 0.0015 /* of the continuous version */
#define CAR_POWER_GOAL 0.45

static const double car_low[] = {-0.6}, car_high[] = {-0.4};

INLINE void show_car(double *state, float *shown)
{
    shown[0] = (float)state[0], shown[1] = (float)state[1];
}

INLINE void step_mountain_car_half(
    const struct classic_settings *settings, const hd *state, hl marked, hf action, struct outcome *outcome
)
{
    (void)marked;
    hd position = state[0], velocity = state[1];
    velocity += (widen_h(action) - 1.0) * CAR_FORCE + cosine_h(3.0 * position) * -CAR_GRAVITY;
    velocity = clamp_h(velocity, -CAR_SPEED, CAR_SPEED);
    position = clamp_h(position + velocity, CAR_LEFT, CAR_RIGHT);
    velocity = pick_h((position == CAR_LEFT) & (velocity < 0.0), splat_h(0), velocity);
    *outcome = (struct outcome){
        .state = {position, velocity},
        .shown = {position, velocity},
        .reward = splat_h(-1),
        .terminated = (position >= CAR_GOAL) & (velocity >= settings->goal_velocity),
    };
}

CLASSIC_STEPS(mountain_car, 2, 2, 1, car_low, car_high, show_car)
CLASSIC_TASK(mountain_car, 2, 2, 3)

/* Round to single precision where Gymnasium uses float32, that is, except in an episode's first step. */
INLINE hd rounded(hl first, hd x) { return pick_h(first, x, widen_h(narrow_h(x))); }

INLINE void step_mountain_car_continuous_half(
    const struct classic_settings *settings, const hd *state, hl first, hf action, struct outcome *outcome
)
{
    hd position = state[0], velocity = state[1], asked = widen_h(action);
    hd slope = CAR_GRAVITY * cosine_h(rounded(first, 3.0 * position));
    /* In Gymnasium an unclipped force is float32, as are results with it; the bounds are Python floats. */
    hd push = widen_h(action * (float)CAR_POWER - narrow_h(slope));
    push = pick_h(asked < -1.0, -CAR_POWER - slope, pick_h(asked > 1.0, CAR_POWER - slope, push));
    velocity = clamp_h(rounded(first, velocity + rounded(first, push)), -CAR_SPEED, CAR_SPEED);
    position = rounded(first, position + rounded(first, velocity));
    position = clamp_h(position, CAR_LEFT, CAR_RIGHT);
    velocity = pick_h((position == CAR_LEFT) & (velocity < 0.0), splat_h(0), velocity);
    hl there = (position >= rounded(first, splat_h(CAR_POWER_GOAL))) &
               (rounded(first, velocity) >= rounded(first, splat_h(settings->goal_velocity)));
    position = widen_h(narrow_h(position)), velocity = widen_h(narrow_h(velocity));
    *outcome = (struct outcome){
        .state = {position, velocity},
        .shown = {position, velocity},
        .reward = pick_h(there, splat_h(100), splat_h(0)) - asked * asked * 0.1,
        .terminated = there,
    };
}

static unsigned step_mountain_car_continuous(
    void *memory, const void *settings, unsigned mask, const float *action, float *observation, double *reward
)
{
    struct classic_group *group = memory;
    unsigned there =
        step_classic(group, settings, mask, action, observation, reward, 2, 2, step_mountain_car_continuous_half);
    group->marked &= ~mask;
    return there;
}

static void start_mountain_car_continuous(
    void *memory, const void *settings, struct generator *generators, unsigned mask, float *observation
)
{
    struct classic_group *group = memory;
    (void)settings;
    group->marked |= mask;
    start_classic(group, generators, mask, observation, 2, 2, 1, car_low, car_high, show_car);
}

CLASSIC_TASK(mountain_car_continuous, 2, 2, 0)
