/* All tasks, what steps vectors of them and what runs networks in them, once for each set of instructions. */

#include "boards/connect4.h"
#include "boards/snake.h"
#include "boards/spread.h"
#include "boards/tag.h"
#include "boards/tictactoe.h"
#include "classic/acrobot.h"
#include "classic/cartpole.h"
#include "classic/mountain_car.h"
#include "classic/pendulum.h"
#include "policies/drawn.h"
#include "policies/forward.h"
#include "games/game_tasks.h"
#include "games/minigrid/minigrid.h"
#include "games/pong.h"
#include "games/sanity/sanity.h"
#include "policies/player.h"
#include "simd/sets.h"
#include "stepper.h"
#include "walker/walker.h"

static const struct task *const all_tasks[] = {
    &cartpole_task, &pendulum_task, &acrobot_task, &mountain_car_task, &mountain_car_continuous_task, &walker_task,
    &game_2048_task, &breakout_task, &pong_task,
    &sanity_bandit_task, &sanity_password_task, &sanity_squared_task, &sanity_blend_task, &sanity_stochastic_task,
    &sanity_noisy_bandit_task, &sanity_forget_task, &sanity_delay_task, &sanity_cutoff_task, &sanity_copy_task, &sanity_memory_task, &sanity_recall_task,
    &connect4_task, &tictactoe_task, &snake_task, &spread_task, &tag_task, /* worlds */
    &minigrid_task, &minigrid_moves_task,
    NULL,
};

static const struct set this_set = {
    .name = SET_NAME, .lanes = LANES, .tasks = all_tasks, .step = step_groups, .play_steps = play_steps, .play = play_lanes, .run = run_rows,
    .forward = forward_rows, .apply = apply,
};

const struct set *const SET = &this_set;
