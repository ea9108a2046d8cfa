/* Rollouts with one stochastic policy, one environment per SIMD lane.
 *
 * Actions and log-probabilities are those of `LeafHead` in algos/networks/heads/head.py. */

#pragma once

#include <stdlib.h>
#include <string.h>

#include "forward.h"
#include "policy.h"
#include "runtime/steps.h"

INLINE uint64_t read_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

/* Buffers of one thread. */
struct buffers {
    vf *one, *other, *third; /* values of a layer, or of an action */
    struct forward forward;  /* for a few rows */
    float *input;            /* inputs and outputs of these rows */
    size_t widest;
    struct expanded expanded; /* LANES rows of bytes, if observations are such rows */
};

/* Compute outputs with one environment per lane; return `one` or `other`, which holds them. */
INLINE vf *run_lanes(const struct steps *steps, const float *observation, int count, const struct buffers *buffers)
{
    const int32_t *sizes = steps->sizes;
    const float *weights = steps->weights;
    vf *one = buffers->one, *other = buffers->other;
    gather_rows(observation, sizes[0], count, one);
    for (int k = 0; steps->mean && k < sizes[0]; k++)
        one[k] = standardized(one[k], steps->mean[k], steps->std[k], steps->clip);
    for (int k = 0; k < steps->layers; k++) {
        const int stride = (int)whole(sizes[k + 1]);
        dense_shared(one, sizes[k], weights, stride, sizes[k + 1], other);
        weights += ((size_t)sizes[k] + 1) * stride;
        for (int j = 0; k + 1 < steps->layers && j < sizes[k + 1]; j++) other[j] = activated(other[j], steps->relu);
        vf *swap = one;
        one = other, other = swap;
    }
    return one;
}

/* The same with one output of a layer per lane, which is faster when most lanes lack an environment. */
INLINE vf *run_few(const struct steps *steps, const float *observation, int count, const struct buffers *buffers)
{
    const int inputs = steps->sizes[0], width = steps->sizes[steps->layers];
    for (int i = 0; steps->mean && i < count; i++)
        for (int k = 0; k < inputs; k++) {
            float x = (observation[i * inputs + k] - steps->mean[k]) / steps->std[k];
            x = x < -steps->clip ? -steps->clip : x;
            buffers->input[i * inputs + k] = x > steps->clip ? steps->clip : x;
        }
    float *out = buffers->input + (size_t)count * inputs;
    forward_some(&buffers->forward, steps->mean ? buffers->input : observation, NULL, out, count, buffers->widest);
    gather_rows(out, width, count, buffers->one);
    return buffers->one;
}

/* The same for rows of bytes. */
INLINE vf *run_rows_of_bytes(const struct steps *steps, const uint8_t *rows, int count, const struct buffers *buffers)
{
    const struct sparse sparse = expand_some(&buffers->expanded, steps->features, rows, count);
    const int width = steps->sizes[steps->layers];
    forward_some(&buffers->forward, NULL, &sparse, buffers->input, count, buffers->widest);
    gather_rows(buffers->input, width, count, buffers->one);
    forbid_lanes(steps->features, rows, width, count, buffers->one);
    return buffers->one;
}

/* Sample discrete actions from `width` logits; overwrites the noise. */
INLINE vf sample_choices(const vf *out, vf *noise, int width, vf *logprob)
{
    vf top = out[0];
    for (int k = 0; k < width; k++) noise[k] = out[k] + noise[k];
    for (int k = 1; k < width; k++) top = pick(out[k] > top, out[k], top);
    vf choice = greatest(noise, width), total = fast_exp(out[0] - top), chosen = out[0];
    for (int k = 1; k < width; k++) {
        total += fast_exp(out[k] - top);
        chosen = pick(choice == splat((float)k), out[k], chosen);
    }
    *logprob = splat(0) + ((chosen - top) - fast_log(total));
    return choice;
}

/* Sample actions in [-1, 1]; leave those scaled for the environments in `noise`. */
INLINE void sample_bounded(const struct steps *steps, const vf *out, vf *noise, int count, vf *action)
{
    for (int k = 0; k < count; k++) {
        vf a;
        if (steps->sampling == SAMPLE_SOFT)
            a = fast_tanh(out[k] + fast_exp(within(out[count + k], MIN_LOG_STD, MAX_LOG_STD)) * noise[k]);
        else
            a = within(fast_tanh(out[k]) + noise[k], -1, 1);
        action[k] = a;
        noise[k] = within((a + 1.0f) * steps->half[k] + steps->low[k], steps->low[k], steps->high[k]);
    }
}

/* Sample Gaussian actions; leave those scaled or clipped for the environments in `noise`. */
INLINE void sample_gaussian(const struct steps *steps, const vf *out, vf *noise, int width, vf *action, vf *logprob)
{
    vf density = splat(0), slope = splat(0);
    for (int k = 0; k < width; k++) {
        vf a = out[k] + steps->deviation[k] * noise[k];
        vf scaled = (a - out[k]) * steps->inverse[k];
        density += ((scaled * scaled) * -0.5f - steps->log_std[k]) - HALF_LOG_2PI;
        action[k] = a;
        if (steps->sampling == SAMPLE_SQUASHED) {
            slope += log_tanh_derivative(a) + steps->log_half[k];
            a = (fast_tanh(a) + 1.0f) * steps->half[k] + steps->low[k];
        }
        noise[k] = within(a, steps->low[k], steps->high[k]);
    }
    *logprob = steps->sampling == SAMPLE_SQUASHED ? density - slope : density;
}

/* Sample actions of up to LANES environments from `base` on; return the first with an invalid action, or -1. */
static int sample_actions(
    const struct vector *vector, const struct steps *steps, const struct rows *rows, int64_t t, int base, int count,
    const struct buffers *buffers
)
{
    const int width = steps->sizes[steps->layers];
    const int64_t at = t * vector->num_envs + base;
    const uint8_t *bytes = rows->observation + (size_t)base * vector->row_bytes;
    const float *observation = (const float *)bytes;
    /* With four lanes rows are as fast, as each weight loaded is used four times. */
    const int few = LANES == 4 || 2 * count <= LANES;
    const vf *out = steps->features ? run_rows_of_bytes(steps, bytes, count, buffers)
                  : few ? run_few(steps, observation, count, buffers) : run_lanes(steps, observation, count, buffers);
    vf *noise = out == buffers->one ? buffers->other : buffers->one, logprob = splat(0);
    const int action_width = steps->sampling == SAMPLE_CHOICE ? width : steps->numbers;
    gather_rows(steps->noise + at * action_width, action_width, count, noise);
    if (steps->sampling == SAMPLE_CHOICE) {
        const vf choice = sample_choices(out, noise, width, &logprob);
        int64_t *drawn = (int64_t *)steps->action + at, *sent = (int64_t *)rows->action + base;
        for (int i = 0; i < count; i++) drawn[i] = sent[i] = (int64_t)(int32_t)choice[i];
        memcpy(steps->logprob + at, &logprob, (size_t)count * sizeof(float));
        return -1;
    }
    if (steps->sampling == SAMPLE_SOFT || steps->sampling == SAMPLE_TANH)
        sample_bounded(steps, out, noise, action_width, buffers->third);
    else
        sample_gaussian(steps, out, noise, action_width, buffers->third, &logprob);
    memcpy(steps->logprob + at, &logprob, (size_t)count * sizeof(float));
    const float *own = (const float *)buffers->third, *taken = (const float *)noise;
    float *drawn = (float *)steps->action + at * action_width;
    float *sent = (float *)rows->action + (size_t)base * action_width;
    int wrong = -1;
    for (int i = count - 1; i >= 0; i--)
        for (int k = 0; k < action_width; k++) {
            drawn[i * action_width + k] = own[k * LANES + i];
            sent[i * action_width + k] = taken[k * LANES + i];
            if (!__builtin_isfinite(taken[k * LANES + i])) wrong = i;
        }
    return wrong < 0 ? -1 : base + wrong;
}

/* Copy the results of step t for `count` environments from `base` on. */
INLINE void record_step(
    const struct vector *vector, const struct steps *steps, const struct rows *rows, int64_t t, int base, int count
)
{
    const size_t bytes = vector->row_bytes, own = (size_t)base * bytes;
    const int64_t at = t * vector->num_envs + base, next = at + vector->num_envs;
    memcpy(steps->observation + next * bytes, rows->observation + own, (size_t)count * bytes);
    for (int i = 0; i < count; i++) {
        const uint8_t terminated = rows->terminated[base + i], truncated = rows->truncated[base + i] & !terminated;
        steps->reward[at + i] = (float)rows->reward[base + i];
        steps->terminated[at + i] = terminated, steps->truncated[at + i] = truncated;
        if (!(terminated | truncated)) continue;
        steps->final_return[at + i] = rows->final_return[base + i];
        steps->final_length[at + i] = rows->final_length[base + i];
        if (truncated) memcpy(steps->final + (at + i) * bytes, rows->final + own + i * bytes, bytes);
    }
}

/* Environments per block; results of a step are contiguous within a block. */
#define MAX_BLOCK 64

/* Keep the first invalid action found by any thread. */
INLINE void report_invalid(struct steps *steps, int64_t place)
{
    int64_t first = __atomic_load_n(&steps->invalid, __ATOMIC_RELAXED);
    while (place < first &&
           !__atomic_compare_exchange_n(&steps->invalid, &first, place, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* Play all steps of some groups; stop at an invalid action. */
static void play_block(
    const struct vector *vector, const struct steps_job *job, int first, int last, const struct buffers *buffers,
    uint64_t ticks[2]
)
{
    struct steps *steps = job->steps;
    const struct rows *rows = job->rows;
    const int base = first * vector->group_size, end = last * vector->group_size;
    const int count = (end < vector->num_envs ? end : vector->num_envs) - base;
    const size_t bytes = vector->row_bytes, own = (size_t)base * bytes;
    memcpy(steps->observation + own, rows->observation + own, (size_t)count * bytes);
    uint64_t before = read_ticks();
    for (int64_t t = 0; t < steps->count; t++) {
        for (int i = 0; i < count; i += LANES) {
            const int some = count - i < LANES ? count - i : LANES;
            const int wrong = sample_actions(vector, steps, rows, t, base + i, some, buffers);
            if (wrong >= 0) {
                report_invalid(steps, t * vector->num_envs + wrong);
                return;
            }
        }
        const uint64_t between = read_ticks();
        vector->step(vector, &(struct step){NULL, rows}, first, last);
        record_step(vector, steps, rows, t, base, count);
        const uint64_t after = read_ticks();
        ticks[0] += between - before, ticks[1] += after - between;
        before = after;
    }
}

static void play_steps(const struct vector *vector, const void *argument, int first, int last)
{
    const struct steps_job *job = argument;
    struct steps *steps = job->steps;
    size_t widest = 0;
    for (int k = steps->features != NULL; k <= steps->layers; k++)
        if (whole(steps->sizes[k]) > widest) widest = whole(steps->sizes[k]);
    vf *memory = aligned_alloc(sizeof(vf), 3 * widest * sizeof(vf));
    float *few = malloc(widest * (2 * FORWARD_ROWS + 2 * LANES) * sizeof *few);
    struct expanded expanded = {0};
    if (!memory || !few || (steps->features && open_expanded(&expanded, steps->features, LANES))) {
        close_expanded(&expanded);
        free(memory);
        free(few);
        __atomic_store_n(&steps->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    const struct buffers buffers = {
        .one = memory, .other = memory + widest, .third = memory + 2 * widest, .input = few + 2 * FORWARD_ROWS * widest,
        .widest = widest, .expanded = expanded,
        .forward = {
            .weights = steps->weights, .scratch = few, .sizes = steps->sizes, .layers = steps->layers,
            .relu = steps->relu,
        },
    };
    uint64_t ticks[2] = {0};
    const int block = vector->group_size < MAX_BLOCK ? MAX_BLOCK / vector->group_size : 1;
    for (int g = first; g < last; g += block)
        play_block(vector, job, g, last - g < block ? last : g + block, &buffers, ticks);
    close_expanded(&expanded);
    free(memory);
    free(few);
    __atomic_fetch_add(&steps->policy_ticks, ticks[0], __ATOMIC_RELAXED);
    __atomic_fetch_add(&steps->env_ticks, ticks[1], __ATOMIC_RELAXED);
}
