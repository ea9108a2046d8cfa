/* PPO's losses (clipped surrogate, clipped value loss, entropy bonus) and their gradients; one SIMD lane per row. */

#ifndef PADDOCK_LOSS_H
#define PADDOCK_LOSS_H

#include <math.h>

#include "network.h"

/* Sums over a shard, in row order. */
struct sums {
    double policy, value, entropy, divergence, clipped;
};

/* Normalization of a minibatch. */
struct scale {
    float mean, deviation; /* of advantages */
    float share;           /* 1 / rows */
};

/* Buffers of LANES rows, in one allocation that starts at `output`. */
struct rows {
    vf *output, *prob, *log; /* [outputs] */
    vf *action, *scaled;     /* [components] */
    vf *grad_log_std;        /* [log_stds] */
};

static int open_rows(struct rows *rows, const struct model *model)
{
    const int outputs = model->outputs, components = model->network->components;
    vf *output = zeros((3 * outputs + 2 * components + model->network->log_stds) * sizeof *output);
    if (!output) return *rows = (struct rows){0}, -1;
    vf *action = output + 3 * outputs;
    *rows = (struct rows){
        output, output + outputs, output + 2 * outputs, action, action + components, action + 2 * components,
    };
    return 0;
}

static void close_rows(struct rows *rows) { free(rows->output); }

/* Load up to LANES rows of outputs and actions; lanes beyond `lanes` repeat the first and are ignored. */
INLINE void take_lanes(
    const struct model *model, struct rows *rows, const float *outputs, int wide, const float *const *actions, int lanes
)
{
    for (int i = 0; i < LANES; i++) {
        const int b = i < lanes ? i : 0;
        for (int j = 0; j < model->outputs; j++) ((float *)&rows->output[j])[i] = outputs[(size_t)b * wide + j];
        for (int c = 0; c < model->network->components; c++) ((float *)&rows->action[c])[i] = actions[b][c];
    }
}

/* Return log-probabilities or log-densities of actions, and keep intermediates for the gradient. */
INLINE vf log_probability(const struct network *network, const float *log_std, struct rows *rows, vf *entropy)
{
    vf total = splat(0), own = splat(0);
    const vf *output = rows->output;
    vf *prob = rows->prob, *log = rows->log;
    *entropy = splat(0);
    for (int c = 0; c < network->components; c++) {
        if (c > 0 && network->leaf[c] != network->leaf[c - 1]) total += own, own = splat(0);
        const int count = network->choices[c];
        if (!count) {
            const vf deviation = splat(*log_std++);
            vf scaled = (rows->action[c] - output[0]) * fast_exp(-deviation);
            rows->scaled[c] = scaled;
            own += ((scaled * scaled) * -0.5f - deviation) - HALF_LOG_2PI;
            *entropy += deviation + (0.5f + HALF_LOG_2PI);
            output++, prob++, log++;
            continue;
        }
        vf top = output[0], sum = splat(0), chosen = splat(0), spread = splat(0);
        for (int j = 1; j < count; j++) top = pick(output[j] > top, output[j], top);
        for (int j = 0; j < count; j++) {
            prob[j] = fast_exp(output[j] - top);
            sum = j ? sum + prob[j] : prob[j];
        }
        vf normal = fast_log(sum);
        for (int j = 0; j < count; j++) {
            log[j] = (output[j] - top) - normal;
            prob[j] /= sum;
            chosen = pick(rows->action[c] == splat((float)j), log[j], chosen);
            spread += prob[j] * log[j];
        }
        rows->scaled[c] = -spread; /* the entropy */
        *entropy -= spread;
        own += chosen;
        output += count, prob += count, log += count;
    }
    return total + own;
}

/* Replace outputs by the loss gradients with respect to them, given those of the log-probabilities. */
INLINE void outputs_gradient(
    const struct network *network, const float *log_std, struct rows *rows, vf grad_logprob, float bonus
)
{
    vf *output = rows->output, *grad_log_std = rows->grad_log_std;
    const vf *prob = rows->prob, *log = rows->log;
    for (int c = 0; c < network->components; c++) {
        const int count = network->choices[c];
        if (!count) {
            vf grad = grad_logprob * rows->scaled[c];
            *grad_log_std++ = grad * rows->scaled[c] - grad_logprob;
            *output++ = grad * fast_exp(-splat(*log_std++));
            prob++, log++;
            continue;
        }
        for (int j = 0; j < count; j++) {
            vf chosen = keep(rows->action[c] == splat((float)j), splat(1));
            output[j] = grad_logprob * (chosen - prob[j]) + (bonus * prob[j]) * (log[j] + rows->scaled[c]);
        }
        output += count, prob += count, log += count;
    }
}

/* Compute the loss gradients of `count` rows: those of outputs and values overwrite them, those of the log standard
 * deviations are accumulated. */
static void ppo_gradient(
    const struct model *model, const struct update *update, const float *log_std, const int64_t *order, int count,
    const struct scale *scale, struct rows *rows, float *outputs, int wide, float *values, int values_wide,
    float *grad_log_std, struct sums *sums
)
{
    const struct network *network = model->network;
    const float low = 1 - update->clip, high = 1 + update->clip, limit = update->value_clip;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        float old[LANES], advantages[LANES], targets[LANES], befores[LANES], slopes[LANES], now[LANES];
        const float *actions[LANES];
        for (int i = 0; i < LANES; i++) {
            const int b = first + (i < lanes ? i : 0);
            const int64_t row = order[b];
            old[i] = update->logprob[row], advantages[i] = update->advantage[row], targets[i] = update->target[row];
            befores[i] = update->value[row], slopes[i] = update->slope[row], now[i] = values[(size_t)b * values_wide];
            actions[i] = update->action + row * network->components;
        }
        take_lanes(model, rows, outputs + (size_t)first * wide, wide, actions, lanes);
        vf entropy, value = *(const vf_row *)now, target = *(const vf_row *)targets, before = *(const vf_row *)befores;
        vf advantage = (*(const vf_row *)advantages - scale->mean) / scale->deviation;
        vf logprob = log_probability(network, log_std, rows, &entropy) - *(const vf_row *)slopes;
        vf difference = logprob - *(const vf_row *)old, ratio = fast_exp(difference);
        vf free = advantage * ratio, bound = advantage * clamp(ratio, splat(low), splat(high));
        vf grad_logprob = pick(free <= bound, free, splat(0)) * -scale->share;
        outputs_gradient(network, log_std, rows, grad_logprob, update->entropy_coef * scale->share);

        vf error = value - target, square = error * error, grad_value = error;
        if (limit >= 0) {
            vf moved = value - before, kept = clamp(moved, splat(-limit), splat(limit));
            vf other = (before + kept) - target, worse = other * other;
            grad_value = pick(worse > square, pick(kept == moved, other, splat(0)), error);
            square = most(square, worse);
        }
        grad_value *= update->value_coef * scale->share;

        vf policy = least(free, bound), divergence = (ratio - 1.0f) - difference;
        vi clipped = magnitude(ratio - 1.0f) > splat(update->clip);
        for (int i = 0; i < lanes; i++) {
            const size_t b = first + i;
            sums->policy += policy[i], sums->value += square[i], sums->entropy += entropy[i];
            sums->divergence += divergence[i], sums->clipped += clipped[i] & 1;
            values[b * values_wide] = grad_value[i];
            for (int j = 0; j < model->outputs; j++) outputs[b * wide + j] = ((const float *)&rows->output[j])[i];
            for (int j = 0; j < network->log_stds; j++) grad_log_std[j] += ((const float *)&rows->grad_log_std[j])[i];
        }
    }
}

#endif
