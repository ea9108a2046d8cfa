/* What a set of instructions computes of recorded inputs: a hash of every bit that comes out.
 *
 * A set whose hashes are not those that envs/native/library.py records was compiled to another arithmetic: operations
 * fused, or in another order. */

#include <stdlib.h>
#include <string.h>

#include "recorded.h"
#include "simd/sets.h"

#define ENVS MAX_LANES /* whole groups of every width */
#define KEY 14
#define HOLD 4 /* steps, on the average, for which an action is held */

#define MOST_ROW 1024 /* bytes of an observation of any task */
#define FLOAT_BYTES (ENVS * MAX_OBSERVATION * sizeof(float))

struct buffers {
    unsigned char observation[ENVS * MOST_ROW], final[ENVS * MOST_ROW];
    float action[ENVS * MAX_ACTION];
    int64_t choice[ENVS];
    double reward[ENVS], running_return[ENVS], final_return[ENVS];
    uint8_t terminated[ENVS], truncated[ENVS];
    int64_t running_length[ENVS], final_length[ENVS], episode[ENVS];
};

static void draw_actions(const struct task *task, struct buffers *buffers, struct inputs *inputs)
{
    for (int i = 0; i < ENVS; i++) {
        if (next_input(inputs) % HOLD) continue;
        if (task->choices) buffers->choice[i] = (int64_t)(next_input(inputs) % (uint32_t)task->choices);
        else
            for (int k = 0; k < task->actions; k++) buffers->action[i * task->actions + k] = next_number(inputs);
    }
}

uint64_t play_recorded(const struct task *task, const void *settings, int steps, int limit, uint64_t hashed)
{
    struct vector *vector = vector_open(task, ENVS, settings, limit, 1, 1);
    struct buffers *b = calloc(1, sizeof *b);
    void *saved = vector ? malloc(vector_saved_bytes(vector)) : NULL;
    struct inputs inputs = {KEY};
    if (!b || !saved) {
        vector_close(vector);
        free(b);
        free(saved);
        return 0;
    }
    const struct rows rows = {
        b->observation, b->final, task->choices ? (const void *)b->choice : b->action, b->reward, b->terminated,
        b->truncated, b->running_return, b->running_length, b->final_return, b->final_length, b->episode,
    };
    const int64_t first[ENVS] = {0};
    vector_begin(vector, KEY, first, &rows);
    for (int t = 0; t < steps; t++) {
        hashed = hash(hashed, b->observation, ENVS * vector->row_bytes);
        draw_actions(task, b, &inputs);
        vector_step(vector, NULL, &rows);
        hashed = hash(hashed, b->final, ENVS * vector->row_bytes);
        hashed = hash(hashed, b->reward, sizeof b->reward);
        hashed = hash(hashed, b->terminated, sizeof b->terminated);
        hashed = hash(hashed, b->truncated, sizeof b->truncated);
    }
    /* Classic states are wider than what is seen of them; a walker's shows in what it does next. */
    if (!task->poses) {
        vector_save(vector, saved);
        hashed = hash(hashed, saved, vector_saved_bytes(vector));
    }
    vector_close(vector);
    free(b);
    free(saved);
    return hashed;
}

uint64_t fingerprint_classic(const struct task *task)
{
    const struct classic_settings settings = {.gravity = 10};
    return play_recorded(task, &settings, 120, 80, 1);
}

#define SLOTS 3
#define LAYERS 2
#define MOST_PARAMETERS 700

/* Whole episodes of networks, whose actions, moments and sums are of the set's width. */
static uint64_t play_networks(
    const struct task *task, const float *parameters, int members, int relu, int head, uint64_t hashed
)
{
    enum { EPISODES = ENVS + 3 };
    const struct classic_settings settings = {.gravity = 10};
    const int32_t sizes[] = {task->observations, 19, task->choices ? task->choices : task->actions};
    const float low[] = {-2, -2}, high[] = {2, 2}, mean[MAX_OBSERVATION] = {0.25f, -0.5f}, std[MAX_OBSERVATION] = {
        0.75f, 1.5f, 2.5f, 0.625f, 1.25f, 3.0f,
    };
    int64_t seeds[EPISODES], lengths[EPISODES] = {0};
    int32_t member[EPISODES];
    uint8_t observe[EPISODES];
    double returns[EPISODES] = {0}, means[EPISODES * MAX_OBSERVATION] = {0}, m2[EPISODES * MAX_OBSERVATION] = {0};
    for (int i = 0; i < EPISODES; i++) seeds[i] = KEY + i, member[i] = i % members, observe[i] = i % 2;
    const struct rollout rollout = {
        .task = task, .settings = &settings, .parameters = parameters, .members = members, .episodes = EPISODES,
        .num_parameters = (sizes[0] + 1) * sizes[1] + (sizes[1] + 1) * sizes[2], .limit = 40, .seeds = seeds,
        .member = member, .observe = observe, .sizes = sizes, .low = low, .high = high, .mean = mean, .std = std,
        .layers = LAYERS, .relu = relu, .head = head, .threads = 1, .clip = 2, .returns = returns, .lengths = lengths,
        .moment_mean = means, .moment_m2 = m2,
    };
    if (play_episodes(&rollout)) return 0;
    const size_t shown = EPISODES * task->observations * sizeof(double);
    hashed = hash(hash(hashed, returns, sizeof returns), lengths, sizeof lengths);
    return hash(hash(hashed, means, shown), m2, shown);
}

static uint64_t run_recorded_networks(const struct set *set)
{
    enum { INPUTS = 21, HIDDEN = 23, OUTPUTS = 5 };
    const int32_t sizes[] = {INPUTS, HIDDEN, OUTPUTS};
    float parameters[SLOTS * MOST_PARAMETERS + SPARE_FLOATS] = {0};
    float input[SLOTS * INPUTS + SPARE_FLOATS] = {0}, output[SLOTS * OUTPUTS], scratch[2 * (HIDDEN + SPARE_FLOATS)] = {0};
    uint64_t hashed = 1;
    struct inputs inputs = {KEY};
    for (int i = 0; i < SLOTS * MOST_PARAMETERS; i++) parameters[i] = next_number(&inputs);
    for (int i = 0; i < SLOTS * INPUTS; i++) input[i] = next_number(&inputs);
    for (int kind = 0; kind < 4; kind++) {
        const struct networks networks = {
            .parameters = parameters, .input = input, .output = output, .scratch = scratch, .sizes = sizes,
            .slots = SLOTS, .num_parameters = (INPUTS + 1) * HIDDEN + (HIDDEN + 1) * OUTPUTS, .layers = LAYERS,
            .relu = kind & 1, .bounded = kind >> 1,
        };
        set->run(&networks);
        hashed = hash(hashed, output, sizeof output);
    }
    for (const struct task *const *task = set->tasks; hashed && *task; task++) {
        if ((*task)->poses) continue;
        const int choices = (*task)->choices;
        hashed = play_networks(*task, parameters, SLOTS, !choices, choices ? HEAD_DISCRETE : HEAD_BOUNDED, hashed);
        if (hashed && !choices) hashed = play_networks(*task, parameters, 1, 0, HEAD_CLIPPED, hashed);
    }
    return hashed;
}

/* One network on rows of which some are left over, and every function of numbers of all sizes. */
static uint64_t run_recorded_forward(const struct set *set)
{
    enum { ROWS = FORWARD_ROWS + 7, INPUTS = 21, HIDDEN = 37, OUTPUTS = 5, HIDDEN_WHOLE = 48, NUMBERS = 1003 };
    enum { WEIGHTS = (INPUTS + 1) * HIDDEN_WHOLE + (HIDDEN + 1) * WHOLE };
    const int32_t sizes[] = {INPUTS, HIDDEN, OUTPUTS};
    float weights[WEIGHTS], input[ROWS * INPUTS], output[ROWS * OUTPUTS], scratch[2 * FORWARD_ROWS * HIDDEN_WHOLE];
    float x[NUMBERS], y[NUMBERS];
    uint64_t hashed = 1;
    struct inputs inputs = {KEY};
    for (int i = 0; i < WEIGHTS; i++) weights[i] = next_number(&inputs);
    for (int i = 0; i < ROWS * INPUTS; i++) input[i] = next_number(&inputs);
    for (int relu = 0; relu < 2; relu++) {
        const struct forward forward = {
            .weights = weights, .input = input, .output = output, .scratch = scratch, .sizes = sizes, .rows = ROWS,
            .layers = LAYERS, .relu = relu,
        };
        set->forward(&forward);
        hashed = hash(hashed, output, sizeof output);
    }
    int64_t starts[ROWS + 1];
    uint16_t index[ROWS * INPUTS];
    for (int r = 0; r <= ROWS; r++) starts[r] = r * (INPUTS / 3);
    for (int i = 0; i < starts[ROWS]; i++) index[i] = (uint16_t)(3 * (i % (INPUTS / 3)) + i % 2);
    for (int ones = 0; ones < 2; ones++) {
        const struct sparse sparse = {starts, index, ones ? NULL : input};
        const struct forward forward = {
            .weights = weights, .output = output, .scratch = scratch, .sizes = sizes, .rows = ROWS, .layers = LAYERS,
            .sparse = &sparse,
        };
        set->forward(&forward);
        hashed = hash(hashed, output, sizeof output);
    }
    for (int i = 0; i < NUMBERS; i++) { /* any bits, but for those of what is no number */
        uint32_t bits = next_input(&inputs);
        if ((bits & 0x7f800000) == 0x7f800000) bits &= 0xbfffffff;
        memcpy(x + i, &bits, sizeof bits);
        if (i % 2) x[i] = next_number(&inputs) * 40;
    }
    for (int function = FUNCTION_TANGENT; function <= FUNCTION_LOG; function++) {
        set->apply(function, x, y, NUMBERS);
        for (int i = 0; i < NUMBERS; i++) /* which has many bits */
            if (y[i] != y[i]) y[i] = 7;
        hashed = hash(hashed, y, sizeof y);
    }
    return hashed;
}

void carry_back(const float *, const float *, float *, int64_t, int64_t);
void discount(const float *, const uint8_t *, double, double *, double *, int64_t, int64_t);
void moments(const void *, int, int64_t, int64_t, double *, double *);

static uint64_t sum_recorded_series(void)
{
    enum { STEPS = 90, COLUMNS = 7, NUMBERS = STEPS * COLUMNS };
    float delta[NUMBERS], carry[NUMBERS], sums[NUMBERS];
    double running[COLUMNS], returns[NUMBERS], mean[COLUMNS], m2[COLUMNS];
    uint8_t ended[NUMBERS];
    struct inputs inputs = {KEY};
    for (int i = 0; i < NUMBERS; i++) {
        delta[i] = next_number(&inputs), carry[i] = 0.45f * next_number(&inputs);
        ended[i] = next_input(&inputs) % 16 == 0;
    }
    for (int k = 0; k < COLUMNS; k++) running[k] = next_number(&inputs);
    carry_back(delta, carry, sums, STEPS, COLUMNS);
    discount(delta, ended, 0.99, running, returns, STEPS, COLUMNS);
    uint64_t hashed = hash(hash(hash(1, sums, sizeof sums), returns, sizeof returns), running, sizeof running);
    for (int single = 0; single < 2; single++) {
        moments(single ? (const void *)sums : returns, single, STEPS, COLUMNS, mean, m2);
        hashed = hash(hash(hashed, mean, sizeof mean), m2, sizeof m2);
    }
    return hashed;
}

#define COUNT 30 /* steps of one policy whose actions are drawn */
#define MOST_SEEN 6
#define MOST_OUTPUTS 3

struct drawn {
    float observation[(COUNT + 1) * ENVS * MOST_SEEN], final[COUNT * ENVS * MOST_SEEN];
    float noise[COUNT * ENVS * MOST_OUTPUTS], logprob[COUNT * ENVS], reward[COUNT * ENVS];
    int64_t action[COUNT * ENVS], final_length[COUNT * ENVS];
    double final_return[COUNT * ENVS];
    uint8_t terminated[COUNT * ENVS], truncated[COUNT * ENVS];
};

/* 0: no memory. */
static uint64_t play_drawn(const struct task *task, const float *weights, int drawn, uint64_t hashed)
{
    const struct classic_settings settings = {.gravity = 10};
    const int outputs = task->choices ? task->choices : drawn == DRAWN_SOFT ? 2 * task->actions : task->actions;
    const int32_t sizes[] = {task->observations, 19, outputs};
    const float mean[MOST_SEEN] = {0.25f, -0.5f}, std[MOST_SEEN] = {0.75f, 1.5f, 2.5f, 0.625f, 1.25f, 3.0f};
    const float log_std = -0.5f, deviation = 0.625f, inverse = 1.75f, low = -1, half = 1.5f, high = 2, log_half = 0.375f;
    const int64_t first[ENVS] = {0};
    struct inputs inputs = {KEY};
    struct buffers *b = calloc(1, sizeof *b);
    struct drawn *d = calloc(1, sizeof *d);
    struct vector *vector = vector_open(task, ENVS, &settings, 11, 1, 1);
    if (b && d && vector) {
        const struct rows rows = {
            b->observation, b->final, task->choices ? (const void *)b->choice : b->action, b->reward, b->terminated,
            b->truncated, b->running_return, b->running_length, b->final_return, b->final_length, b->episode,
        };
        struct steps steps = {
            .weights = weights, .sizes = sizes, .mean = mean, .std = std, .log_std = &log_std,
            .deviation = &deviation, .inverse = &inverse, .low = &low, .half = &half, .high = &high,
            .log_half = &log_half, .noise = d->noise, .observation = (unsigned char *)d->observation, .action = d->action,
            .logprob = d->logprob, .reward = d->reward, .terminated = d->terminated, .truncated = d->truncated,
            .final_return = d->final_return, .final_length = d->final_length, .final = (unsigned char *)d->final, .count = COUNT,
            .layers = LAYERS, .relu = task->choices == 2, .drawn = drawn, .clip = 2,
            .numbers = task->choices ? 0 : task->actions,
        };
        for (size_t i = 0; i < sizeof d->noise / sizeof *d->noise; i++) d->noise[i] = next_number(&inputs);
        vector_begin(vector, KEY, first, &rows);
        const int refused = vector_play(vector, &steps, &rows) != -1;
        hashed = refused ? 0 : hash(hash(hashed, d, sizeof *d), b->observation, FLOAT_BYTES);
    } else
        hashed = 0;
    vector_close(vector);
    free(b);
    free(d);
    return hashed;
}

static uint64_t play_recorded_policies(const struct set *set)
{
    float parameters[MOST_PARAMETERS];
    uint64_t hashed = 1;
    struct inputs inputs = {KEY};
    for (int i = 0; i < MOST_PARAMETERS; i++) parameters[i] = next_number(&inputs);
    for (const struct task *const *task = set->tasks; hashed && *task; task++) {
        if ((*task)->poses) continue;
        const int first = (*task)->choices ? DRAWN_CHOICE : DRAWN_CLIPPED;
        const int last = (*task)->choices ? DRAWN_CHOICE : DRAWN_TANH;
        for (int drawn = first; hashed && drawn <= last; drawn++)
            hashed = play_drawn(*task, parameters, drawn, hashed);
    }
    return hashed;
}

/* Of a task, or of "networks", "forward", "steps" or "series"; 0: there is no such task, or no memory. */
uint64_t fingerprint(const char *set_name, const char *part)
{
    const struct set *set = find_set(set_name);
    if (set && !strcmp(part, "networks")) return run_recorded_networks(set);
    if (set && !strcmp(part, "forward")) return run_recorded_forward(set);
    if (set && !strcmp(part, "series")) return sum_recorded_series();
    if (set && !strcmp(part, "steps")) return play_recorded_policies(set);
    const struct task *task = find_task(set_name, part);
    if (!task) return 0;
    if (task->fingerprint) return task->fingerprint(task);
    return task->seats ? play_recorded_worlds(task) : play_recorded(task, task->example, 60, 40, 1);
}
