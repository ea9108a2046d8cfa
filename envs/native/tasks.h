/* All tasks, what steps vectors of them and what plays whole episodes, once for each set of instructions. */

#include "acrobot.h"
#include "cartpole.h"
#include "mountain_car.h"
#include "pendulum.h"
#include "player.h"
#include "stepper.h"
#include "walker.h"

static const struct task *const all_tasks[] = {
    &cartpole_task, &pendulum_task, &acrobot_task, &mountain_car_task, &mountain_car_continuous_task, &walker_task, NULL,
};

const struct task *const *const TASKS = all_tasks;
part *const STEP = step_groups;
play_part *const PLAY = play_lanes;
