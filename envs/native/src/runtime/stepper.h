/* One step of a vector's groups: actions from rows to lanes, the task's step, results from lanes to rows. */

#pragma once

#include <string.h>

#include "simd/transpose.h"
#include "simd/halves.h"
#include "vector.h"
#include "multiagent.h"

/* For the caller's arrays, which may be unaligned. */
typedef double hd_row __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
typedef int64_t hl_row __attribute__((vector_size(4 * LANES), aligned(8), may_alias));

/* Gather actions of a group of `lanes` environments from rows. */
INLINE void gather_actions(const struct task *task, const void *action, int lanes, unsigned mask, float *gathered)
{
    const float *row = action;
    const int64_t *choice = action;
    if (task->choices && lanes == LANES && mask == ALL_LANES) {
        for (int h = 0; h < 2; h++) {
            hi number = __builtin_convertvector(*(const hl_row *)(choice + h * HALF), hi);
            ((hf *)gathered)[h] = __builtin_convertvector(number, hf);
        }
        return;
    }
    for (; mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        if (task->choices) gathered[i] = (float)(int32_t)choice[i];
        else
            for (int k = 0; k < task->actions; k++) gathered[k * lanes + i] = row[i * task->actions + k];
    }
}

INLINE void scatter(const float *x, int lanes, int width, unsigned mask, float *rows)
{
    for (; mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        for (int k = 0; k < width; k++) rows[i * width + k] = x[k * lanes + i];
    }
}

/* Write LANES rows of four numbers, by interleaving pairs twice. */
INLINE void scatter_fours(const float *lanes, float *rows)
{
    const vf *x = (const vf *)lanes;
    vf even[2] = {ZIP_LOW(x[0], x[2]), ZIP_HIGH(x[0], x[2])}, odd[2] = {ZIP_LOW(x[1], x[3]), ZIP_HIGH(x[1], x[3])};
    for (int h = 0; h < 2; h++) {
        vf fours[2] = {ZIP_LOW(even[h], odd[h]), ZIP_HIGH(even[h], odd[h])};
        memcpy(rows + 2 * h * LANES, fours, sizeof fours);
    }
}

/* Record reward, return, length and flags; return the lanes that reached the time limit. */
INLINE unsigned record_results(
    const struct rows *rows, int base, unsigned mask, unsigned terminated, const double *reward, int64_t limit
)
{
    unsigned truncated = 0;
    for (; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask), i = base + lane;
        rows->reward[i] = reward[lane];
        rows->running_return[i] += reward[lane];
        rows->running_length[i]++;
        rows->terminated[i] = terminated >> lane & 1;
        rows->truncated[i] = rows->running_length[i] >= limit;
        truncated |= (unsigned)rows->truncated[i] << lane;
    }
    return truncated;
}

/* Expand each bit to a byte, 0 or 1. */
INLINE void spread_bits(unsigned bits, uint8_t bytes[LANES])
{
    for (int k = 0; k < LANES; k += 8) {
        uint64_t one_each = (bits >> k & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
        uint64_t spread = (one_each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
        memcpy(bytes + k, &spread, LANES < 8 ? LANES : 8);
    }
}

/* As `record_results`, for LANES environments at once. */
INLINE unsigned record_all_results(
    const struct rows *rows, int base, unsigned terminated, const double *reward, int64_t limit
)
{
    hl late[2];
    for (int h = 0; h < 2; h++) {
        int i = base + h * HALF;
        hd pay = ((const hd *)reward)[h];
        *(hd_row *)(rows->reward + i) = pay;
        *(hd_row *)(rows->running_return + i) += pay;
        hl length = *(hl_row *)(rows->running_length + i) + 1;
        *(hl_row *)(rows->running_length + i) = length;
        late[h] = (limit - 1 - length) >> 63;
    }
    unsigned truncated = to_bits_h(late);
    spread_bits(terminated, rows->terminated + base);
    spread_bits(truncated, rows->truncated + base);
    return truncated;
}

/* Step groups of `lanes` lanes, the first `group_size` of which hold environments, with observations of `width`
 * numbers. Inlined, so that constant arguments specialize it. */
INLINE void step_some(
    const struct vector *vector, const struct step *step, int first, int last, int lanes, int group_size, int width
)
{
    const struct task *task = vector->task;
    const struct rows *rows = step->rows;
    const int64_t limit = vector->time_limit ? vector->time_limit : INT64_MAX;
    const unsigned all = 0xffffffffu >> (32 - group_size);
    const size_t action_bytes = task->choices ? sizeof(int64_t) : task->actions * sizeof(float);
    float action[MAX_ACTION * MAX_LANES] __attribute__((aligned(64))) = {0};
    float observation[MAX_OBSERVATION * MAX_LANES] __attribute__((aligned(64)));
    double reward[MAX_LANES] __attribute__((aligned(64)));
    for (int g = first; g < last; g++) {
        int base = g * group_size;
        unsigned mask = !step->chosen && base + group_size <= vector->num_envs ? all : lanes_of(vector, g, step->chosen);
        if (!mask) continue;
        gather_actions(task, (const char *)rows->action + base * action_bytes, lanes, mask, action);
        void *group = vector->groups + vector->stride * g;
        unsigned ended = task->step(group, vector->settings, mask, action, observation, reward), late = 0;
        float *row = (float *)rows->observation + (size_t)base * width;
        if (mask == all && lanes == LANES && width == 4) scatter_fours(observation, row);
        else scatter(observation, lanes, width, mask, row);
        if (mask != all) late = record_results(rows, base, mask, ended, reward, limit);
        else
            for (int i = 0; i < group_size; i += LANES)
                late |= record_all_results(rows, base + i, ended >> i, reward + i, limit) << i;
        ended |= late;
        if (ended && vector->same_step) restart_lanes(vector, g, ended, rows);
    }
}

/* Step groups of LANES lanes whose observations are rows of bytes. */
static void step_rows(const struct vector *vector, const struct step *step, int first, int last)
{
    const struct task *task = vector->task;
    const struct rows *rows = step->rows;
    const int64_t limit = vector->time_limit ? vector->time_limit : INT64_MAX;
    double reward[LANES] __attribute__((aligned(64)));
    for (int g = first; g < last; g++) {
        const int base = g * LANES;
        const unsigned mask = lanes_of(vector, g, step->chosen);
        if (!mask) continue;
        unsigned ended = task->step_rows(
            vector->groups + vector->stride * g, vector->settings, vector->generators + base, mask,
            (const int64_t *)rows->action + base, rows->observation + (size_t)base * task->row_bytes, reward
        );
        if (mask == ALL_LANES) ended |= record_all_results(rows, base, ended, reward, limit);
        else ended |= record_results(rows, base, mask, ended, reward, limit);
        if (ended && vector->same_step) restart_lanes(vector, g, ended, rows);
    }
}

static void step_groups(const struct vector *vector, const void *job, int first, int last)
{
    /* Constant arguments are faster; only CartPole's step is short enough for this to matter. */
    const struct task *task = vector->task;
    if (task->agents) step_multiagent(vector, job, first, last);
    else if (task->row_bytes) step_rows(vector, job, first, last);
    else if (task->lanes == LANES && task->observations == 4) step_some(vector, job, first, last, LANES, LANES, 4);
    else step_some(vector, job, first, last, task->lanes, vector->group_size, task->observations);
}
