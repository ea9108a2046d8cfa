/* CartPole-v1 (Barto, Sutton & Anderson 1983), integrated by Gymnasium's Euler steps. */

#pragma once

#include "classic.h"

#define CART_FORCE 10.0
#define PER_MASS (1 / (0.1 + 1.0)) /* of cart and pole, 1/kg; Gymnasium divides, which is slower */
#define POLE_MASS 0.1
#define HALF_POLE 0.5 /* m */
#define POLE_MOMENT (POLE_MASS * HALF_POLE)
#define CART_SECONDS 0.02 /* per step */
#define CART_LIMIT 2.4
#define POLE_LIMIT (12 * 2 * PI / 360)
#define CART_SPREAD 0.05 /* of the initial state */

INLINE void step_cartpole_half(
    const struct classic_settings *settings, const hd *state, hl marked, hf action, struct outcome *outcome
)
{
    hd x = state[0], x_dot = state[1], theta = state[2], theta_dot = state[3], sine, cosine;
    hd force = widen_h(action) * (2 * CART_FORCE) - CART_FORCE;
    small_sine_cosine_h(theta, &sine, &cosine);
    hd temp = (force + POLE_MOMENT * (theta_dot * theta_dot) * sine) * PER_MASS;
    hd theta_acc = (9.8 * sine - cosine * temp) /
                   (HALF_POLE * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) * PER_MASS));
    hd x_acc = temp - POLE_MOMENT * theta_acc * cosine * PER_MASS;
    x += CART_SECONDS * x_dot;
    x_dot += CART_SECONDS * x_acc;
    theta += CART_SECONDS * theta_dot;
    theta_dot += CART_SECONDS * theta_acc;
    hl fallen = (magnitude_h(x) > CART_LIMIT) | (magnitude_h(theta) > POLE_LIMIT);
    /* As in Gymnasium, steps after the end give no reward. */
    hd last = settings->sutton_barto ? splat_h(-1) : pick_h(marked, splat_h(0), splat_h(1));
    hd pay = settings->sutton_barto ? splat_h(0) : splat_h(1);
    *outcome = (struct outcome){
        .state = {x, x_dot, theta, theta_dot},
        .shown = {x, x_dot, theta, theta_dot},
        .reward = pick_h(fallen, last, pay),
        .terminated = fallen,
    };
}

static unsigned step_cartpole(
    void *memory, const void *settings, unsigned mask, const float *action, float *observation, double *reward
)
{
    struct classic_group *group = memory;
    unsigned fallen = step_classic(group, settings, mask, action, observation, reward, 4, 4, step_cartpole_half);
    group->marked |= fallen;
    return fallen;
}

INLINE void show_cartpole(double *state, float *shown)
{
    for (int k = 0; k < 4; k++) shown[k] = (float)state[k];
}

static void start_cartpole(
    void *memory, const void *settings, struct generator *generators, unsigned mask, float *observation
)
{
    static const double low[] = {-CART_SPREAD, -CART_SPREAD, -CART_SPREAD, -CART_SPREAD};
    static const double high[] = {CART_SPREAD, CART_SPREAD, CART_SPREAD, CART_SPREAD};
    struct classic_group *group = memory;
    (void)settings;
    group->marked &= ~mask;
    start_classic(group, generators, mask, observation, 4, 4, 4, low, high, show_cartpole);
}

CLASSIC_TASK(cartpole, 4, 4, 2)
