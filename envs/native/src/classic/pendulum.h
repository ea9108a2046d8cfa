/* Pendulum-v1. Torque and terms of it alone are in single precision, as with NumPy's float32 actions. */

#pragma once

#include "classic.h"

#define PENDULUM_SPEED 8.0
#define PENDULUM_TORQUE 2.0f
#define PENDULUM_SECONDS 0.05 /* per step */

/* (x + pi) % (2 pi) - pi for |x| < 1e6; 2 pi is split in two so that subtracting multiples of it is exact. */
INLINE hd upright_angle(hd x)
{
    const double period = 2 * PI, upper = 0x1.921fb544p2, magic = 6755399441055744.0;
    hd a = x + PI;
    hd count = (a * (1 / period) + magic) - magic; /* sometimes one too many, never one too few */
    hd rest = (a - count * upper) - count * (period - upper);
    rest += pick_h(rest < 0.0, splat_h(period), splat_h(0));
    return rest - PI;
}

INLINE void step_pendulum_half(
    const struct classic_settings *settings, const hd *state, hl marked, hf action, struct outcome *outcome
)
{
    (void)marked;
    hd theta = state[0], speed = state[1], sine, cosine;
    hf low = splat_hf(-PENDULUM_TORQUE), high = splat_hf(PENDULUM_TORQUE);
    hf torque = pick_hf(action < low, low, pick_hf(action > high, high, action));
    hd angle = upright_angle(theta);
    hd cost = (angle * angle + 0.1 * (speed * speed)) + widen_h(0.001f * (torque * torque));
    sine_cosine_h(theta, &sine, &cosine);
    hd push = (3 * settings->gravity / 2.0) * sine + widen_h(3.0f * torque);
    speed = clamp_h(speed + push * PENDULUM_SECONDS, -PENDULUM_SPEED, PENDULUM_SPEED);
    theta += speed * PENDULUM_SECONDS;
    sine_cosine_h(theta, &sine, &cosine);
    *outcome = (struct outcome){.state = {theta, speed}, .shown = {cosine, sine, speed}, .reward = -cost};
}

INLINE void show_pendulum(double *state, float *shown)
{
    hd sine, cosine;
    sine_cosine_h(splat_h(state[0]), &sine, &cosine);
    shown[0] = (float)cosine[0], shown[1] = (float)sine[0], shown[2] = (float)state[1];
}

static const double pendulum_low[] = {-PI, -1}, pendulum_high[] = {PI, 1};

CLASSIC_STEPS(pendulum, 2, 3, 2, pendulum_low, pendulum_high, show_pendulum)
CLASSIC_TASK(pendulum, 2, 3, 0)
