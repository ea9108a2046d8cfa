/* Code compiled once per instruction set: SIMD tasks, steps of vectors, and networks. */

#include "classic/acrobot.h"
#include "classic/cartpole.h"
#include "classic/mountain_car.h"
#include "classic/pendulum.h"
#include "policies/sampler.h"
#include "policies/forward.h"
#include "policies/player.h"
#include "simd/sets.h"
#include "stepper.h"
#include "walker/walker.h"

static const struct task *const simd_tasks[] = {
    &cartpole_task, &pendulum_task, &acrobot_task, &mountain_car_task, &mountain_car_continuous_task, &walker_task, NULL,
};

static const struct set this_set = {
    .name = SET_NAME, .lanes = LANES, .tasks = simd_tasks, .step = step_groups, .play_steps = play_steps,
    .play = play_lanes, .run = run_rows, .forward = forward_rows, .apply = apply,
};

const struct set *const SET = &this_set;
