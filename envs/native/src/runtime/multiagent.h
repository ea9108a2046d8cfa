/* One step of a vector's multi-agent environments, as in envs/vector/multiagent_slots.py. */

#pragma once

#include <string.h>

#include "vector.h"

/* Reset rewards and flags of rows from `first` on, and count the step. */
INLINE void clear_results(const struct rows *rows, size_t first, size_t count)
{
    memset(rows->reward + first, 0, count * sizeof *rows->reward);
    memset(rows->terminated + first, 0, count);
    memset(rows->truncated + first, 0, count);
    for (size_t i = first; i < first + count; i++) rows->running_length[i] += rows->acts[i];
}

/* Record the end of an agent and clear its row. */
INLINE void end_agent(const struct rows *rows, size_t i, size_t row_bytes)
{
    unsigned char *own = rows->observation + i * row_bytes;
    memcpy(rows->final + i * row_bytes, own, row_bytes);
    memset(own, 0, row_bytes);
    rows->final_return[i] = rows->running_return[i], rows->final_length[i] = rows->running_length[i];
    rows->running_return[i] = 0, rows->running_length[i] = 0;
    rows->alive[i] = rows->acts[i] = 0;
}

/* Record results of a step of one environment; return whether its episode is over. */
INLINE int finish_step(
    const struct rows *rows, size_t first, int agents, size_t row_bytes, const uint8_t *alive_before, int cut_off
)
{
    int living = 0;
    for (int k = 0; k < agents; k++) {
        const size_t i = first + k;
        rows->running_return[i] += rows->reward[i];
        if (cut_off && rows->alive[i] && !rows->terminated[i]) {
            if (alive_before[k]) rows->truncated[i] = 1;
            else { /* created in this very step: removed without a result */
                memset(rows->observation + i * row_bytes, 0, row_bytes);
                rows->alive[i] = rows->acts[i] = 0;
            }
        }
        if (rows->terminated[i] | rows->truncated[i]) end_agent(rows, i, row_bytes);
        living |= rows->alive[i];
    }
    return !living;
}

/* Step groups of LANES environments; inlined, so that a constant number of agents specializes it. */
INLINE void step_multiagent_groups(const struct vector *vector, const struct step *step, int first, int last, int agents)
{
    const struct task *task = vector->task;
    const struct rows *rows = step->rows;
    const size_t row_bytes = vector->row_bytes;
    uint8_t alive_before[LANES * MAX_AGENTS];
    for (int g = first; g < last; g++) {
        const unsigned mask = lanes_of(vector, g, step->chosen);
        const size_t base = (size_t)g * LANES, at = base * agents;
        if (mask == ALL_LANES) {
            clear_results(rows, at, LANES * agents);
            memcpy(alive_before, rows->alive + at, LANES * agents);
        } else
            for (unsigned rest = mask; rest; rest &= rest - 1) {
                const size_t lane = __builtin_ctz(rest);
                clear_results(rows, at + lane * agents, agents);
                memcpy(alive_before + lane * agents, rows->alive + at + lane * agents, agents);
            }
        if (!mask) continue;
        const struct agent_rows own = agent_rows_at(vector, rows, base);
        task->step_multiagent(
            vector->groups + vector->stride * g, vector->settings, vector->generators + base, mask,
            (const int64_t *)rows->action + at, &own
        );
        unsigned over = 0;
        for (unsigned rest = mask; rest; rest &= rest - 1) {
            const int lane = __builtin_ctz(rest);
            const size_t env = base + lane;
            const int cut_off = ++vector->clock[env] >= vector->time_limit && vector->time_limit;
            rows->over[env] = finish_step(rows, env * agents, agents, row_bytes, alive_before + (size_t)lane * agents, cut_off);
            over |= (unsigned)rows->over[env] << lane;
        }
        if (over && vector->same_step) restart_multiagent(vector, g, over, rows);
    }
}

static void step_multiagent(const struct vector *vector, const struct step *step, int first, int last)
{
    if (vector->agents == 2) step_multiagent_groups(vector, step, first, last, 2);
    else step_multiagent_groups(vector, step, first, last, vector->agents);
}
