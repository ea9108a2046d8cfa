/* Start of episodes in multi-agent environments. */

#include <string.h>

#include "vector.h"

struct agent_rows agent_rows_at(const struct vector *vector, const struct rows *rows, size_t env)
{
    const size_t first = env * vector->agents;
    return (struct agent_rows){
        .observation = rows->observation + first * vector->row_bytes,
        .reward = rows->reward + first,
        .terminated = rows->terminated + first,
        .truncated = rows->truncated + first,
        .alive = rows->alive + first,
        .acts = rows->acts + first,
    };
}

void start_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows)
{
    const struct task *task = vector->task;
    const size_t base = (size_t)group * vector->group_size, agents = vector->agents;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const size_t env = base + __builtin_ctz(rest), first = env * agents;
        memset(rows->observation + first * vector->row_bytes, 0, agents * vector->row_bytes);
        memset(rows->running_return + first, 0, agents * sizeof *rows->running_return);
        memset(rows->running_length + first, 0, agents * sizeof *rows->running_length);
        memset(rows->alive + first, 0, agents);
        memset(rows->acts + first, 0, agents);
        vector->clock[env] = 0;
    }
    const struct agent_rows own = agent_rows_at(vector, rows, base);
    task->start_multiagent(
        vector->groups + vector->stride * group, vector->settings, vector->generators + base, mask, &own
    );
}

void restart_multiagent(const struct vector *vector, int group, unsigned mask, const struct rows *rows)
{
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const int env = group * vector->group_size + __builtin_ctz(rest);
        rows->episode[env]++;
        if (vector->keyed && !vector->task->deterministic) seed_keyed(vector, env, rows->episode[env]);
    }
    start_multiagent(vector, group, mask, rows);
}
