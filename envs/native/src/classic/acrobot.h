/* Acrobot-v1 (Sutton 1996) with the dynamics of Sutton & Barto's book, integrated by fourth-order Runge-Kutta. */

#pragma once

#include "classic.h"

#define ACROBOT_SECONDS 0.2 /* per step */
#define ACROBOT_SPEED_1 (4 * PI)
#define ACROBOT_SPEED_2 (9 * PI)
#define ACROBOT_SPREAD 0.1 /* of the initial state */
#define MAX_TURNS 100      /* per step; no reachable state makes as many */

/* Time derivative of the state. Links are 1 m and 1 kg each, with the centre of mass in the middle and inertia 1. */
INLINE void acrobot_rate(const hd *state, hd torque, hd *rate)
{
    hd theta1 = state[0], theta2 = state[1], speed1 = state[2], speed2 = state[3], sine2, cosine2;
    sine_cosine_h(theta2, &sine2, &cosine2);
    hd d1 = 0.25 + (1.25 + cosine2) + 1.0 + 1.0;
    hd d2 = (0.25 + 0.5 * cosine2) + 1.0;
    hd phi2 = 0.5 * 9.8 * cosine_h(theta1 + theta2 - PI / 2);
    hd phi1 = -0.5 * (speed2 * speed2) * sine2 - speed2 * speed1 * sine2 + 1.5 * 9.8 * cosine_h(theta1 - PI / 2) + phi2;
    hd turn2 = (torque + d2 / d1 * phi1 - 0.5 * (speed1 * speed1) * sine2 - phi2) / (0.25 + 1.0 - d2 * d2 / d1);
    rate[0] = speed1, rate[1] = speed2, rate[2] = -(d2 * turn2 + phi1) / d1, rate[3] = turn2;
}

INLINE hd wrapped(hd x)
{
    for (int turn = 0; turn < MAX_TURNS && any_h(x > PI); turn++) x -= pick_h(x > PI, splat_h(2 * PI), splat_h(0));
    for (int turn = 0; turn < MAX_TURNS && any_h(x < -PI); turn++) x += pick_h(x < -PI, splat_h(2 * PI), splat_h(0));
    return x;
}

INLINE void step_acrobot_half(
    const struct classic_settings *settings, const hd *state, hl marked, hf action, struct outcome *outcome
)
{
    (void)settings, (void)marked;
    const double part[] = {0.0, ACROBOT_SECONDS / 2, ACROBOT_SECONDS / 2, ACROBOT_SECONDS};
    hd torque = widen_h(action) - 1.0, rate[4][4], at[4], next[4], sine1, cosine1, sine2, cosine2;
    for (int stage = 0; stage < 4; stage++) {
        for (int k = 0; k < 4; k++) at[k] = stage ? state[k] + part[stage] * rate[stage - 1][k] : state[k];
        acrobot_rate(at, torque, rate[stage]);
    }
    for (int k = 0; k < 4; k++)
        next[k] = state[k] +
                  ACROBOT_SECONDS / 6.0 * (rate[0][k] + 2.0 * rate[1][k] + 2.0 * rate[2][k] + rate[3][k]);
    hd theta1 = wrapped(next[0]), theta2 = wrapped(next[1]);
    hd speed1 = clamp_h(next[2], -ACROBOT_SPEED_1, ACROBOT_SPEED_1);
    hd speed2 = clamp_h(next[3], -ACROBOT_SPEED_2, ACROBOT_SPEED_2);
    sine_cosine_h(theta1, &sine1, &cosine1);
    sine_cosine_h(theta2, &sine2, &cosine2);
    hl above = -cosine1 - cosine_h(theta2 + theta1) > 1.0;
    *outcome = (struct outcome){
        .state = {theta1, theta2, speed1, speed2},
        .shown = {cosine1, sine1, cosine2, sine2, speed1, speed2},
        .reward = pick_h(above, splat_h(0), splat_h(-1)),
        .terminated = above,
    };
}

INLINE void show_acrobot(double *state, float *shown)
{
    for (int k = 0; k < 4; k++) state[k] = (float)state[k]; /* as Gymnasium does in reset only */
    for (int k = 0; k < 2; k++) {
        hd sine, cosine;
        sine_cosine_h(splat_h(state[k]), &sine, &cosine);
        shown[2 * k] = (float)cosine[0], shown[2 * k + 1] = (float)sine[0], shown[4 + k] = (float)state[2 + k];
    }
}

static const double acrobot_low[] = {-ACROBOT_SPREAD, -ACROBOT_SPREAD, -ACROBOT_SPREAD, -ACROBOT_SPREAD};
static const double acrobot_high[] = {ACROBOT_SPREAD, ACROBOT_SPREAD, ACROBOT_SPREAD, ACROBOT_SPREAD};

CLASSIC_STEPS(acrobot, 4, 6, 4, acrobot_low, acrobot_high, show_acrobot)
CLASSIC_TASK(acrobot, 4, 6, 3)
