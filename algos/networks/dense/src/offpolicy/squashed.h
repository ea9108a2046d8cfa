/* Actions of some rows that tanh squashes, and gradients through them: a lane for each row. */

#ifndef PADDOCK_SQUASHED_H
#define PADDOCK_SQUASHED_H

#include <math.h>

#include "../layers.h"

#define TOGETHER 64 /* rows that are computed one layer after another: so that weights are read seldom */

struct drawn { /* in one piece from `action` on */
    int actions;
    float *action;       /* [actions, TOGETHER] */
    float *raw, *spread; /* [actions, TOGETHER]: log deviations before they are clipped, and deviations times noise */
    float *logprob;      /* [TOGETHER] */
};

static int open_drawn(struct drawn *drawn, int actions)
{
    const size_t each = (size_t)actions * TOGETHER;
    float *action = zeros((3 * each + TOGETHER) * sizeof *action);
    if (!action) return *drawn = (struct drawn){0}, -1;
    *drawn = (struct drawn){actions, action, action + each, action + 2 * each, action + 3 * each};
    return 0;
}

static void close_drawn(struct drawn *drawn) { free(drawn->action); }

/* One number of each of LANES rows that lie `apart`, of which `lanes` are there: the others repeat the first. */
INLINE vf column(const float *from, size_t apart, int lanes)
{
    float found[LANES];
    for (int i = 0; i < LANES; i++) found[i] = from[(i < lanes ? i : 0) * apart];
    return *(const vf_row *)found;
}

INLINE void write_column(vf x, float *to, size_t apart, int lanes)
{
    for (int i = 0; i < lanes; i++) to[i * apart] = x[i];
}

/* Draw from Gaussians by means and log deviations [count, wide] and noise [count, actions]; log-densities are those of
 * the squashed actions. */
static void draw_squashed(struct drawn *drawn, const float *out, int wide, const float *noise, int count)
{
    const int actions = drawn->actions;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf logprob = splat(0);
        for (int c = 0; c < actions; c++) {
            const float *at = out + (size_t)first * wide + c;
            const vf mean = column(at, wide, lanes), raw = column(at + actions, wide, lanes);
            const vf drew = column(noise + (size_t)first * actions + c, actions, lanes);
            const vf log_std = within(raw, LEAST_LOG_STD, MOST_LOG_STD), spread = quick_exp(log_std) * drew;
            const vf u = mean + spread, density = ((drew * drew) * -0.5f - log_std) - HALF_LOG_2PI;
            logprob += density - log_tangent_slope(u);
            *(vf *)(drawn->action + c * TOGETHER + first) = quick_tangent(u);
            *(vf *)(drawn->raw + c * TOGETHER + first) = raw;
            *(vf *)(drawn->spread + c * TOGETHER + first) = spread;
        }
        *(vf *)(drawn->logprob + first) = logprob;
    }
}

/* Map gradients by actions [actions, TOGETHER] and by every log-density to those by means and log deviations
 * [count, wide], at this noise. */
static void squashed_gradient(
    const struct drawn *drawn, const float *by_action, float by_logprob, float *by, int wide, int count
)
{
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < drawn->actions; c++) {
            const size_t at = (size_t)c * TOGETHER + first;
            const vf action = *(const vf *)(drawn->action + at), raw = *(const vf *)(drawn->raw + at);
            const vf slope = 1.0f - action * action;
            const vi free = raw == within(raw, LEAST_LOG_STD, MOST_LOG_STD);
            const vf by_u = *(const vf *)(by_action + at) * slope + (by_logprob + by_logprob) * action;
            const vf by_log_std = by_u * *(const vf *)(drawn->spread + at) - by_logprob;
            float *to = by + (size_t)first * wide + c;
            write_column(by_u, to, wide, lanes);
            write_column(keep(free, by_log_std), to + drawn->actions, wide, lanes);
        }
    }
}

/* Take tanh of outputs [count, wide], and add noise of a deviation, clipped, if there is any. */
static void take_tangent(
    struct drawn *drawn, const float *out, int wide, const float *noise, float deviation, float most, int count
)
{
    const int actions = drawn->actions;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < actions; c++) {
            vf action = quick_tangent(column(out + (size_t)first * wide + c, wide, lanes));
            if (noise) {
                const vf drew = column(noise + (size_t)first * actions + c, actions, lanes) * deviation;
                action = within(action + within(drew, -most, most), -1, 1);
            }
            *(vf *)(drawn->action + c * TOGETHER + first) = action;
        }
    }
}

/* Map gradients by actions [actions, TOGETHER] to those by outputs [count, wide]. */
static void tangent_gradient(const struct drawn *drawn, const float *by_action, float *by, int wide, int count)
{
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < drawn->actions; c++) {
            const vf action = *(const vf *)(drawn->action + (size_t)c * TOGETHER + first);
            const vf by_out = *(const vf *)(by_action + (size_t)c * TOGETHER + first) * (1.0f - action * action);
            write_column(by_out, by + (size_t)first * wide + c, wide, lanes);
        }
    }
}

#endif
