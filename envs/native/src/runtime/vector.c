/* Vectors of environments, independent of task and SIMD width; library.py calls these functions. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "simd/sets.h"

#define ALIGNMENT 64
#define GENERATOR_BYTES 40
#define MARK "Paddock\1" /* magic number of saved states */

/* Header of a saved vector. */
struct saved {
    char mark[8], task[32];
    int64_t num_envs, keyed, key;
};

struct start {
    const uint8_t *chosen;
    const int64_t *seeds; /* NULL: seeds derived from the key */
    const struct rows *rows;
};

/* SplitMix64's mixing, as `keyed_seed` of envs/vector/contract.py. */
static uint64_t keyed_seed(int64_t key, int64_t env, int64_t episode)
{
    const int64_t inputs[] = {key, env, episode};
    uint64_t mixed = 0;
    for (int k = 0; k < 3; k++) {
        mixed = (mixed ^ (uint64_t)inputs[k]) + 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
        mixed ^= mixed >> 31;
    }
    return mixed >> 33;
}

void seed_keyed(const struct vector *vector, int env, int64_t episode)
{
    seed_generator(&vector->generators[env], keyed_seed(vector->key, env, episode));
}

static void *zeroed(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT) return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static size_t row_bytes_of(const struct task *task, const void *settings)
{
    if (task->agent_bytes) return task->agent_bytes(settings);
    return task->row_bytes ? task->row_bytes : task->observations * sizeof(float);
}

static void *group_at(const struct vector *vector, int group) { return vector->groups + vector->stride * group; }

void vector_close(struct vector *vector)
{
    if (!vector) return;
    if (vector->pool) close_thread_pool(vector->pool);
    for (int g = 0; g < vector->num_groups; g++) close_group(vector->task, group_at(vector, g));
    free(vector->groups);
    free(vector->generators);
    free(vector->clock);
    free(vector);
}

struct vector *vector_open(
    const struct task *task, int num_envs, const void *settings, int time_limit, int same_step, int threads
)
{
    struct vector *vector = num_envs > 0 && num_envs <= INT_MAX - MAX_LANES ? calloc(1, sizeof *vector) : NULL;
    if (!vector) return NULL;
    /* Whole registers of environments per group, but few enough that all threads have work. */
    const struct set *set = set_of(task);
    const int64_t shared = (int64_t)(threads > 1 ? threads : 1) * set->lanes;
    const int64_t registers = (num_envs + shared - 1) / shared, ways = task->lanes / set->lanes;
    const int group_size = set->lanes * (int)(registers < ways ? registers : ways);
    int num_groups = (num_envs + group_size - 1) / group_size;
    *vector = (struct vector){
        .task = task,
        .settings = settings,
        .step = set->step,
        .stride = (task->group_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
        .num_envs = num_envs,
        .agents = task->agents ? task->agents(settings) : 1,
        .row_bytes = row_bytes_of(task, settings),
        .group_size = group_size,
        .time_limit = time_limit,
        .same_step = same_step,
    };
    vector->groups = zeroed(num_groups, vector->stride);
    vector->generators = zeroed((size_t)num_groups * group_size, sizeof *vector->generators);
    if (task->agents) vector->clock = zeroed((size_t)num_groups * group_size, sizeof *vector->clock);
    int failed = !vector->groups || !vector->generators || (task->agents && !vector->clock);
    if (threads > 1 && num_groups > 1 && !failed)
        failed = !(vector->pool = open_thread_pool(threads < num_groups ? threads : num_groups));
    /* `num_groups` counts open groups, which vector_close closes. */
    for (; !failed && vector->num_groups < num_groups; vector->num_groups++)
        if (open_group(task, group_at(vector, vector->num_groups), settings)) failed = 1;
    if (!failed) return vector;
    vector_close(vector);
    return NULL;
}

unsigned lanes_of(const struct vector *vector, int group, const uint8_t *chosen)
{
    int group_size = vector->group_size, base = group * group_size, count = vector->num_envs - base;
    unsigned mask = 0;
    for (int i = 0; i < group_size && i < count; i++) mask |= (unsigned)(!chosen || chosen[base + i]) << i;
    return mask;
}

/* Start an episode in each lane of the mask with its generator. */
static void start_lanes(const struct vector *vector, int group, unsigned mask, const struct rows *rows)
{
    const struct task *task = vector->task;
    float observation[MAX_OBSERVATION * MAX_LANES] __attribute__((aligned(ALIGNMENT)));
    int base = group * vector->group_size, width = task->row_bytes ? 0 : task->observations;
    struct generator *generators = vector->generators + base;
    unsigned char *own = rows->observation + (size_t)base * vector->row_bytes;
    if (task->row_bytes) task->start_rows(group_at(vector, group), vector->settings, generators, mask, own);
    else task->start(group_at(vector, group), vector->settings, generators, mask, observation);
    for (; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        float *row = (float *)own + (size_t)lane * width;
        for (int k = 0; k < width; k++) row[k] = observation[k * task->lanes + lane];
        rows->running_return[base + lane] = 0;
        rows->running_length[base + lane] = 0;
    }
}

void restart_lanes(const struct vector *vector, int group, unsigned mask, const struct rows *rows)
{
    int base = group * vector->group_size;
    const size_t bytes = vector->row_bytes;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int i = base + __builtin_ctz(rest);
        memcpy(rows->final + (size_t)i * bytes, rows->observation + (size_t)i * bytes, bytes);
        rows->final_return[i] = rows->running_return[i];
        rows->final_length[i] = rows->running_length[i];
        rows->episode[i]++;
        if (vector->keyed) seed_keyed(vector, i, rows->episode[i]);
    }
    start_lanes(vector, group, mask, rows);
}

static void start_groups(const struct vector *vector, const void *job, int first, int last)
{
    const struct start *start = job;
    for (int g = first; g < last; g++) {
        unsigned mask = lanes_of(vector, g, start->chosen);
        if (!mask) continue;
        for (unsigned rest = mask; rest; rest &= rest - 1) {
            int i = g * vector->group_size + __builtin_ctz(rest);
            struct generator *generator = &vector->generators[i];
            if (!start->seeds) seed_keyed(vector, i, start->rows->episode[i]);
            else if (start->seeds[i] >= 0) seed_generator(generator, (uint64_t)start->seeds[i]);
        }
        if (vector->clock) start_multiagent(vector, g, mask, start->rows);
        else start_lanes(vector, g, mask, start->rows);
    }
}

int vector_start(struct vector *vector, const uint8_t *chosen, const int64_t *seeds, const struct rows *rows)
{
    vector->keyed = 0;
    share_groups(vector, start_groups, &(struct start){chosen, seeds, rows});
    return 0;
}

int vector_begin(struct vector *vector, int64_t key, const int64_t *numbers, const struct rows *rows)
{
    vector->keyed = 1, vector->key = key;
    memcpy(rows->episode, numbers, vector->num_envs * sizeof *numbers);
    share_groups(vector, start_groups, &(struct start){NULL, NULL, rows});
    return 0;
}

/* Return whether a row of actions is invalid. */
static int is_wrong(const struct task *task, const void *action, size_t row)
{
    if (task->choices) return ((const uint64_t *)action)[row] >= (uint64_t)task->choices;
    const float *number = (const float *)action + row * task->actions;
    for (int k = 0; k < task->actions; k++)
        if (!__builtin_isfinite(number[k])) return 1;
    return 0;
}

/* For the caller's arrays, which may be unaligned. */
typedef uint64_t choices __attribute__((vector_size(16), aligned(8), may_alias));
typedef uint32_t numbers __attribute__((vector_size(16), aligned(4), may_alias));

#define CHOICES (sizeof(choices) / sizeof(uint64_t))
#define NUMBERS (sizeof(numbers) / sizeof(uint32_t))

/* Return whether `is_wrong` holds for any row, without branches except for the last few rows. */
static int any_wrong(const struct task *task, const void *action, size_t rows)
{
    size_t seen = 0; /* rows */
    int wrong = 0;
    if (task->choices) {
        const uint64_t *choice = action, last = (uint64_t)task->choices - 1;
        choices signs = {0};
        for (; seen + CHOICES <= rows; seen += CHOICES) {
            choices some = *(const choices *)(choice + seen);
            signs |= some | (last - some);
        }
        wrong = (signs[0] | signs[1]) >> 63;
    } else {
        const float *number = action;
        const size_t whole = rows * task->actions / NUMBERS * NUMBERS;
        numbers infinite = {0};
        for (size_t i = 0; i < whole; i += NUMBERS)
            infinite |= (numbers)((*(const numbers *)(number + i) & 0x7f800000) == 0x7f800000);
        wrong = (infinite[0] | infinite[1] | infinite[2] | infinite[3]) != 0;
        seen = whole / task->actions;
    }
    for (; seen < rows && !wrong; seen++) wrong = is_wrong(task, action, seen);
    return wrong;
}

int64_t vector_step(struct vector *vector, const uint8_t *chosen, const struct rows *rows)
{
    const int agents = vector->agents;
    const int64_t all = (int64_t)vector->num_envs * agents;
    if (chosen || any_wrong(vector->task, rows->action, all))
        for (int64_t i = 0; i < all; i++)
            if ((!chosen || chosen[i / agents]) && (agents == 1 || rows->acts[i]) && is_wrong(vector->task, rows->action, i))
                return i;
    share_groups(vector, vector->step, &(struct step){chosen, rows});
    return -1;
}

int64_t vector_play(struct vector *vector, struct steps *steps, const struct rows *rows)
{
    steps->invalid = INT64_MAX;
    steps->failed = 0;
    steps->policy_ticks = steps->env_ticks = 0;
    share_groups(vector, set_of(vector->task)->play_steps, &(struct steps_job){steps, rows});
    if (steps->failed) return -2;
    return steps->invalid == INT64_MAX ? -1 : steps->invalid % vector->num_envs;
}

static size_t saved_each(const struct vector *vector)
{
    return GENERATOR_BYTES + vector->task->saved_bytes + (vector->clock ? sizeof *vector->clock : 0);
}

size_t vector_row_bytes(const struct vector *vector) { return vector->row_bytes; }

size_t vector_saved_bytes(const struct vector *vector)
{
    return sizeof(struct saved) + vector->num_envs * saved_each(vector);
}

static struct saved saved_head(const struct vector *vector)
{
    struct saved head = {.mark = MARK, .num_envs = vector->num_envs, .keyed = vector->keyed, .key = vector->key};
    strncpy(head.task, vector->task->name, sizeof head.task - 1);
    return head;
}

/* Save a header, then for each environment the generator (state, increment, half, has_half), the task's state and, if
 * multi-agent, the steps of the episode. Nothing depends on the SIMD width. The caller saves the rows. */
void vector_save(const struct vector *vector, void *saved)
{
    const struct task *task = vector->task;
    struct saved head = saved_head(vector);
    unsigned char *at = saved;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int i = 0; i < vector->num_envs; i++, at += saved_each(vector)) {
        memcpy(at, &vector->generators[i], GENERATOR_BYTES);
        const unsigned char *group = group_at(vector, i / vector->group_size);
        const int place = i % vector->group_size;
        if (task->save) task->save(group, place, at + GENERATOR_BYTES);
        else memcpy(at + GENERATOR_BYTES, group + place * task->saved_bytes, task->saved_bytes);
        if (vector->clock) memcpy(at + GENERATOR_BYTES + task->saved_bytes, vector->clock + i, sizeof *vector->clock);
    }
}

/* Return 0, or -1 for another task or number of environments; nothing has changed then. */
int vector_load(struct vector *vector, const void *saved)
{
    const struct task *task = vector->task;
    struct saved head, own = saved_head(vector);
    const unsigned char *at = saved;
    memcpy(&head, at, sizeof head);
    if (memcmp(head.mark, own.mark, sizeof own.mark) || memcmp(head.task, own.task, sizeof own.task) ||
        head.num_envs != own.num_envs)
        return -1;
    vector->keyed = head.keyed != 0, vector->key = head.key;
    at += sizeof head;
    for (int i = 0; i < vector->num_envs; i++, at += saved_each(vector)) {
        memcpy(&vector->generators[i], at, GENERATOR_BYTES);
        unsigned char *group = group_at(vector, i / vector->group_size);
        const int place = i % vector->group_size;
        if (task->load) task->load(group, vector->settings, place, at + GENERATOR_BYTES);
        else memcpy(group + place * task->saved_bytes, at + GENERATOR_BYTES, task->saved_bytes);
        if (vector->clock) memcpy(vector->clock + i, at + GENERATOR_BYTES + task->saved_bytes, sizeof *vector->clock);
    }
    return 0;
}
