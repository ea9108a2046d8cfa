/* What a set of instructions makes of recorded inputs, as one number: of one whose compiler fused or reordered
 * operations it is another. */

#include <stdlib.h>

#include "dense.h"
#include "runtime/recorded.h"

#define ROWS 90
#define MINIBATCHES 3
#define MOST_PARAMETERS 2000
#define MOST_WIDTH 16
#define KEY 17

struct inputs_of_learning {
    float parameters[MOST_PARAMETERS], momentum[MOST_PARAMETERS], variance[MOST_PARAMETERS];
    float observation[ROWS * MOST_WIDTH], action[ROWS * MOST_WIDTH];
    float logprob[ROWS], advantage[ROWS], target[ROWS], value[ROWS], slope[ROWS];
    float values[ROWS], logprobs[ROWS];
    int64_t order[ROWS];
    double report[MINIBATCHES * REPORTED];
};

static void fill(float *numbers, int count, struct inputs *inputs)
{
    for (int i = 0; i < count; i++) numbers[i] = next_number(inputs);
}

/* Learn a little, and look at what came of it; 0: no memory. */
static uint64_t learn_recorded(const struct dense_set *set, const struct network *network, int width, uint64_t hashed)
{
    static const int64_t ends[MINIBATCHES] = {70, 77, ROWS};
    static const float rates[MINIBATCHES] = {0.03125f, 0.0625f, 0.015625f}, deviations[MINIBATCHES] = {4, 2, 1.5f};
    struct inputs_of_learning *in = calloc(1, sizeof *in);
    struct inputs inputs = {KEY};
    if (!in) return 0;
    fill(in->parameters, MOST_PARAMETERS, &inputs);
    for (int i = 0; i < MOST_PARAMETERS; i++) in->parameters[i] *= 0.25f;
    fill(in->observation, ROWS * width, &inputs);
    for (int i = 0; i < ROWS; i++) {
        float *legal = network->masked ? in->observation + i * width + network->sizes[0] : NULL;
        for (int c = 0; c < network->components; c++) {
            const int choices = network->choices[c];
            in->action[i * network->components + c] = choices ? (float)(choices - 1) : next_number(&inputs);
            for (int j = 1; legal && j < choices; j++) *legal++ = next_input(&inputs) % 2;
            if (legal) *legal++ = 1; /* the last choice, which is taken */
        }
        in->order[i] = i * 7 % ROWS;
    }
    fill(in->logprob, ROWS, &inputs);
    fill(in->advantage, ROWS, &inputs);
    fill(in->target, ROWS, &inputs);
    fill(in->value, ROWS, &inputs);
    const struct update update = {
        .parameters = in->parameters, .momentum = in->momentum, .variance = in->variance,
        .observation = in->observation, .action = in->action, .logprob = in->logprob, .advantage = in->advantage,
        .target = in->target, .value = in->value, .slope = in->slope, .order = in->order, .ends = ends,
        .rates = rates, .deviations = deviations, .report = in->report, .minibatches = MINIBATCHES, .clip = 0.25f,
        .value_clip = network->masked ? 0.5f : -1, .value_coef = 0.5f, .entropy_coef = 0.0625f,
        .max_norm = network->masked ? -1 : 0.5f, .epsilon = 0x1p-16f, .momentum_decay = 0.875f,
        .variance_decay = 0.984375f, .normalize_advantages = 1, .threads = 2,
    };
    const struct evaluation evaluation = {
        .parameters = in->parameters, .observation = in->observation, .action = in->action, .value = in->values,
        .logprob = in->logprobs, .rows = ROWS, .threads = 2,
    };
    int failed = set->update(network, &update) || set->evaluate(network, &evaluation);
    hashed = hash(hash(hashed, in->parameters, sizeof in->parameters), in->variance, sizeof in->variance);
    hashed = hash(hash(hashed, in->report, sizeof in->report), in->values, sizeof in->values);
    hashed = hash(hashed, in->logprobs, sizeof in->logprobs);
    free(in);
    return failed ? 0 : hashed;
}

uint64_t fingerprint_dense(const char *name)
{
    static const int32_t apart[] = {7, 19, 18, 2, 7, 19, 18, 1}, numbers[] = {0, 0}, leaf[] = {0, 0};
    static const int32_t together[] = {5, 33, 33, 6, 33, 1}, kinds[] = {3, 0, 2}, leaves[] = {0, 1, 1};
    const struct network one = {apart, numbers, leaf, {0, 3, 3}, 0, 0, 2, 2};
    const struct network other = {together, kinds, leaves, {1, 1, 1}, 1, 1, 3, 1};
    const struct dense_set *set = find_dense(name);
    uint64_t hashed = learn_recorded(set, &one, 7, 1);
    return hashed ? learn_recorded(set, &other, 5 + 6, hashed) : 0;
}
