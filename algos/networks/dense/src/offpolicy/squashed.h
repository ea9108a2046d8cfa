/* Tanh-squashed actions and their gradients; one SIMD lane per row. */

#ifndef PADDOCK_SQUASHED_H
#define PADDOCK_SQUASHED_H

#include <math.h>

#include "../layers.h"

#define REPLAY_BLOCK 96 /* rows per layer product, so that weights are read rarely */
#define ROW_GROUP 4     /* rows that threads do not share, a divisor of REPLAY_BLOCK: products of fewer rows are slow */

struct sample { /* one allocation, which starts at `action` */
    int actions;
    float *action;       /* [actions, REPLAY_BLOCK] */
    float *raw, *spread; /* [actions, REPLAY_BLOCK]: unclipped log standard deviations; deviation * noise */
    float *logprob;      /* [REPLAY_BLOCK] */
};

static int open_sample(struct sample *sample, int actions)
{
    const size_t each = (size_t)actions * REPLAY_BLOCK;
    float *action = zeros((3 * each + REPLAY_BLOCK) * sizeof *action);
    if (!action) return *sample = (struct sample){0}, -1;
    *sample = (struct sample){actions, action, action + each, action + 2 * each, action + 3 * each};
    return 0;
}

static void close_sample(struct sample *sample) { free(sample->action); }

/* Load one column of up to LANES rows that are `stride` apart; lanes beyond `lanes` repeat the first. */
INLINE vf column(const float *from, size_t stride, int lanes)
{
    float found[LANES];
    for (int i = 0; i < LANES; i++) found[i] = from[(i < lanes ? i : 0) * stride];
    return *(const vf_row *)found;
}

INLINE void write_column(vf x, float *to, size_t stride, int lanes)
{
    for (int i = 0; i < lanes; i++) to[i * stride] = x[i];
}

/* Sample squashed actions and their log-densities from means and log standard deviations [count, wide] and noise
 * [count, actions]. */
static void sample_squashed(struct sample *sample, const float *out, int wide, const float *noise, int count)
{
    const int actions = sample->actions;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf logprob = splat(0);
        for (int c = 0; c < actions; c++) {
            const float *at = out + (size_t)first * wide + c;
            const vf mean = column(at, wide, lanes), raw = column(at + actions, wide, lanes);
            const vf noise_column = column(noise + (size_t)first * actions + c, actions, lanes);
            const vf log_std = within(raw, MIN_LOG_STD, MAX_LOG_STD), spread = fast_exp(log_std) * noise_column;
            const vf u = mean + spread, density = ((noise_column * noise_column) * -0.5f - log_std) - HALF_LOG_2PI;
            logprob += density - log_tanh_derivative(u);
            *(vf *)(sample->action + c * REPLAY_BLOCK + first) = fast_tanh(u);
            *(vf *)(sample->raw + c * REPLAY_BLOCK + first) = raw;
            *(vf *)(sample->spread + c * REPLAY_BLOCK + first) = spread;
        }
        *(vf *)(sample->logprob + first) = logprob;
    }
}

/* Backpropagate gradients of actions [actions, REPLAY_BLOCK] and log-densities to means and log standard deviations
 * [count, wide]. */
static void squashed_gradient(
    const struct sample *sample, const float *grad_action, float grad_logprob, float *grad, int wide, int count
)
{
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < sample->actions; c++) {
            const size_t at = (size_t)c * REPLAY_BLOCK + first;
            const vf action = *(const vf *)(sample->action + at), raw = *(const vf *)(sample->raw + at);
            const vf slope = 1.0f - action * action;
            const vi free = raw == within(raw, MIN_LOG_STD, MAX_LOG_STD);
            const vf grad_u = *(const vf *)(grad_action + at) * slope + (grad_logprob + grad_logprob) * action;
            const vf grad_log_std = grad_u * *(const vf *)(sample->spread + at) - grad_logprob;
            float *to = grad + (size_t)first * wide + c;
            write_column(grad_u, to, wide, lanes);
            write_column(keep(free, grad_log_std), to + sample->actions, wide, lanes);
        }
    }
}

/* Apply tanh to outputs [count, wide], and add clipped noise unless it is NULL. */
static void sample_tanh(
    struct sample *sample, const float *out, int wide, const float *noise, float deviation, float most, int count
)
{
    const int actions = sample->actions;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < actions; c++) {
            vf action = fast_tanh(column(out + (size_t)first * wide + c, wide, lanes));
            if (noise) {
                const vf noise_column = column(noise + (size_t)first * actions + c, actions, lanes) * deviation;
                action = within(action + within(noise_column, -most, most), -1, 1);
            }
            *(vf *)(sample->action + c * REPLAY_BLOCK + first) = action;
        }
    }
}

/* Backpropagate gradients of actions [actions, REPLAY_BLOCK] to outputs [count, wide]. */
static void tanh_gradient(const struct sample *sample, const float *grad_action, float *grad, int wide, int count)
{
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        for (int c = 0; c < sample->actions; c++) {
            const size_t at = (size_t)c * REPLAY_BLOCK + first;
            const vf action = *(const vf *)(sample->action + at);
            const vf grad_out = *(const vf *)(grad_action + at) * (1.0f - action * action);
            write_column(grad_out, grad + (size_t)first * wide + c, wide, lanes);
        }
    }
}

#endif
