/* What a set of instructions makes of recorded inputs, as one number: of one whose compiler fused or reordered
 * operations it is another. */

#include <stdlib.h>
#include <string.h>

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
    int64_t order[ROWS], starts[ROWS + 1];
    uint16_t index[ROWS * MOST_WIDTH];
    float kept[ROWS * MOST_WIDTH];
    double report[MINIBATCHES * REPORTED];
};

static void fill(float *numbers, int count, struct inputs *inputs)
{
    for (int i = 0; i < count; i++) numbers[i] = next_number(inputs);
}

/* Leave only every third number of observations, apart from what is legal, or with `ones` a 1 in its place. */
static struct sparse thin_out(struct inputs_of_learning *in, int numbers, int width, int ones)
{
    int64_t count = 0;
    for (int row = 0; row < ROWS; row++) {
        float *from = in->observation + row * width;
        in->starts[row] = count;
        for (int i = row % 3; i < numbers; i += 3) in->index[count] = (uint16_t)i, in->kept[count++] = from[i];
        memmove(in->observation + row * (width - numbers), from + numbers, (width - numbers) * sizeof *from);
    }
    in->starts[ROWS] = count;
    return (struct sparse){in->starts, in->index, ones ? NULL : in->kept};
}

/* Learn a little, and look at what came of it; 0: no memory. */
static uint64_t learn_recorded(
    const struct dense_set *set, const struct network *network, int width, int sparse, uint64_t hashed
)
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
    const struct sparse thin = sparse ? thin_out(in, network->sizes[0], width, network->masked) : (struct sparse){0};
    fill(in->logprob, ROWS, &inputs);
    fill(in->advantage, ROWS, &inputs);
    fill(in->target, ROWS, &inputs);
    fill(in->value, ROWS, &inputs);
    const struct update update = {
        .parameters = in->parameters, .momentum = in->momentum, .variance = in->variance,
        .observation = in->observation, .sparse = sparse ? &thin : NULL, .action = in->action,
        .logprob = in->logprob, .advantage = in->advantage,
        .target = in->target, .value = in->value, .slope = in->slope, .order = in->order, .ends = ends,
        .rates = rates, .deviations = deviations, .report = in->report, .minibatches = MINIBATCHES, .clip = 0.25f,
        .value_clip = network->masked ? 0.5f : -1, .value_coef = 0.5f, .entropy_coef = 0.0625f,
        .max_norm = network->masked ? -1 : 0.5f, .epsilon = 0x1p-16f, .momentum_decay = 0.875f,
        .variance_decay = 0.984375f, .normalize_advantages = 1, .threads = 2,
    };
    const struct evaluation evaluation = {
        .parameters = in->parameters, .observation = in->observation, .sparse = sparse ? &thin : NULL,
        .action = in->action, .value = in->values, .logprob = in->logprobs, .rows = ROWS, .threads = 2,
    };
    int failed = set->update(network, &update) || set->evaluate(network, &evaluation);
    hashed = hash(hash(hashed, in->parameters, sizeof in->parameters), in->variance, sizeof in->variance);
    hashed = hash(hash(hashed, in->report, sizeof in->report), in->values, sizeof in->values);
    hashed = hash(hashed, in->logprobs, sizeof in->logprobs);
    free(in);
    return failed ? 0 : hashed;
}

#define Q_UPDATES 3
#define Q_ROWS 70

struct inputs_of_q {
    float parameters[MOST_PARAMETERS], targets[MOST_PARAMETERS], momentum[MOST_PARAMETERS], variance[MOST_PARAMETERS];
    float observation[Q_UPDATES * Q_ROWS * MOST_WIDTH], following[Q_UPDATES * Q_ROWS * MOST_WIDTH];
    float reward[Q_UPDATES * Q_ROWS], discount[Q_UPDATES * Q_ROWS], weight[Q_UPDATES * Q_ROWS];
    float distance[Q_UPDATES * Q_ROWS];
    int32_t action[Q_UPDATES * Q_ROWS];
    double report[Q_UPDATES * Q_REPORTED];
};

/* The same of action values, on two threads. */
static uint64_t learn_recorded_q(const struct dense_set *set, const struct network *network, int width, uint64_t hashed)
{
    static const float rates[Q_UPDATES] = {0.03125f, 0.0625f, 0.015625f}, deviations[Q_UPDATES] = {4, 2, 1.5f};
    static const float copies[Q_UPDATES] = {0, 1, 0}, shares[Q_UPDATES] = {0.125f, 0, 0.25f};
    const int count = Q_UPDATES * Q_ROWS, choices = network->masked ? width - network->sizes[0] : 3;
    struct inputs_of_q *in = calloc(1, sizeof *in);
    struct q_learner *learner = set->q->open(network, 0);
    struct inputs inputs = {KEY};
    int failed = !in || !learner;
    if (!failed) {
        const struct vectors vectors = {in->parameters, in->targets, in->momentum, in->variance};
        fill(in->parameters, MOST_PARAMETERS, &inputs);
        fill(in->targets, MOST_PARAMETERS, &inputs);
        fill(in->observation, count * width, &inputs);
        fill(in->following, count * width, &inputs);
        fill(in->reward, count, &inputs);
        fill(in->weight, count, &inputs);
        for (int i = 0; i < count; i++) {
            in->action[i] = (int32_t)(next_input(&inputs) % (unsigned)choices);
            in->discount[i] = i % 5 ? 0.75f : 0;
            for (int j = 0; network->masked && j < choices; j++)
                in->following[i * width + network->sizes[0] + j] = next_input(&inputs) % 2;
        }
        const struct q_update update = {
            .observation = in->observation, .following = in->following, .action = in->action, .reward = in->reward,
            .discount = in->discount, .weight = in->weight, .rates = rates, .deviations = deviations,
            .taus = network->masked ? shares : copies, .distance = in->distance, .report = in->report,
            .updates = Q_UPDATES, .rows = Q_ROWS, .huber = network->masked ? 0.5f : -1,
            .max_norm = network->masked ? -1 : 0.5f, .epsilon = 0x1p-16f, .momentum_decay = 0.875f,
            .variance_decay = 0.984375f, .double_q = network->masked, .threads = 2,
        };
        set->q->load(learner, &vectors);
        failed = set->q->update(learner, &update);
        set->q->save(learner, &vectors);
        hashed = hash(hash(hashed, in->parameters, sizeof in->parameters), in->targets, sizeof in->targets);
        hashed = hash(hash(hashed, in->variance, sizeof in->variance), in->distance, sizeof in->distance);
        hashed = hash(hashed, in->report, sizeof in->report);
    }
    if (learner) set->q->close(learner);
    free(in);
    return failed ? 0 : hashed;
}

#define AC_UPDATES 3
#define AC_ROWS 70
#define AC_OBSERVED 5
#define AC_ACTIONS 2
#define AC_CHOICES 3
#define AC_WIDTH (AC_OBSERVED + AC_CHOICES) /* of an observation, with what is legal */

struct inputs_of_actor_critic {
    float actor[4][MOST_PARAMETERS], critics[4][MOST_PARAMETERS]; /* parameters, targets, momentum, variance */
    float observation[AC_UPDATES * AC_ROWS * AC_WIDTH], next_observation[AC_UPDATES * AC_ROWS * AC_WIDTH];
    float action[AC_UPDATES * AC_ROWS * AC_ACTIONS], noise[2 * AC_UPDATES * AC_ROWS * AC_ACTIONS];
    float reward[AC_UPDATES * AC_ROWS], discount[AC_UPDATES * AC_ROWS], weight[AC_UPDATES * AC_ROWS];
    float distance[AC_UPDATES * AC_ROWS], log_alpha[3];
    double told[2], report[AC_UPDATES * ACTOR_CRITIC_REPORTED];
};

/* The same of an actor and two critics, on two threads. */
static uint64_t learn_recorded_actor_critic(
    const struct dense_set *set, const struct actor_critic_settings *settings, uint64_t hashed
)
{
    static const float rates[AC_UPDATES] = {0.03125f, 0.0625f, 0.015625f}, deviations[AC_UPDATES] = {4, 2, 1.5f};
    const int count = AC_UPDATES * AC_ROWS, width = settings->masked ? AC_WIDTH : AC_OBSERVED;
    struct inputs_of_actor_critic *in = calloc(1, sizeof *in);
    struct actor_critic *learner = set->actor_critic->open(settings);
    struct inputs inputs = {KEY};
    int failed = !in || !learner;
    if (!failed) {
        const struct vectors actor = {in->actor[0], in->actor[1], in->actor[2], in->actor[3]};
        const struct vectors critics = {in->critics[0], in->critics[1], in->critics[2], in->critics[3]};
        for (int k = 0; k < 2; k++) {
            fill(in->actor[k], MOST_PARAMETERS, &inputs);
            fill(in->critics[k], MOST_PARAMETERS, &inputs);
        }
        fill(in->observation, count * width, &inputs);
        fill(in->next_observation, count * width, &inputs);
        fill(in->action, count * AC_ACTIONS, &inputs);
        fill(in->noise, 2 * count * AC_ACTIONS, &inputs);
        fill(in->reward, count, &inputs);
        fill(in->weight, count, &inputs);
        for (int i = 0; i < count; i++) {
            in->discount[i] = i % 5 ? 0.75f : 0;
            if (settings->masked) in->action[i] = (float)(next_input(&inputs) % AC_CHOICES);
            for (int j = AC_OBSERVED; j < width; j++) {
                in->observation[i * width + j] = next_input(&inputs) % 2;
                in->next_observation[i * width + j] = next_input(&inputs) % 2;
            }
        }
        const struct lessons lessons = {
            .observation = in->observation, .action = in->action, .reward = in->reward,
            .next_observation = in->next_observation, .discount = in->discount, .weight = in->weight,
            .noise = in->noise, .rates = rates, .deviations = deviations, .actor_rates = rates,
            .actor_deviations = deviations, .log_alpha = in->log_alpha, .told = in->told, .report = in->report,
            .distance = in->distance, .updates = AC_UPDATES, .rows = AC_ROWS, .threads = 2,
        };
        set->actor_critic->load(learner, &actor, &critics);
        failed = set->actor_critic->update(learner, &lessons);
        set->actor_critic->save(learner, &actor, &critics);
        hashed = hash(hash(hashed, in->actor, sizeof in->actor), in->critics, sizeof in->critics);
        hashed = hash(hash(hashed, in->distance, sizeof in->distance), in->log_alpha, sizeof in->log_alpha);
        hashed = hash(hashed, in->report, sizeof in->report);
    }
    if (learner) set->actor_critic->close(learner);
    free(in);
    return failed ? 0 : hashed;
}

#define LSTM_STEPS 5
#define LSTM_ROWS 70
#define LSTM_IN 3
#define LSTM_WIDTH 18

struct inputs_of_lstm {
    float in_weight[4 * LSTM_WIDTH * LSTM_IN], state_weight[4 * LSTM_WIDTH * LSTM_WIDTH];
    float in_bias[4 * LSTM_WIDTH], state_bias[4 * LSTM_WIDTH];
    float inputs[LSTM_STEPS * LSTM_ROWS * LSTM_IN], state[LSTM_ROWS * 2 * LSTM_WIDTH];
    float memory[LSTM_STEPS * LSTM_ROWS * 2 * LSTM_WIDTH], back[LSTM_STEPS * LSTM_ROWS * 2 * LSTM_WIDTH];
    uint8_t start[LSTM_STEPS * LSTM_ROWS], acts[LSTM_STEPS * LSTM_ROWS];
};

/* The same of an LSTM: what it remembers, and its gradient. */
static uint64_t remember_recorded(const struct dense_set *set, uint64_t hashed)
{
    struct inputs_of_lstm *in = calloc(1, sizeof *in), *by = calloc(1, sizeof *by);
    struct inputs inputs = {KEY};
    float *tape = NULL;
    int failed = !in || !by;
    if (!failed) {
        fill((float *)in, offsetof(struct inputs_of_lstm, memory) / sizeof(float), &inputs);
        fill(in->back, LSTM_STEPS * LSTM_ROWS * 2 * LSTM_WIDTH, &inputs);
        for (int i = 0; i < LSTM_STEPS * LSTM_ROWS; i++)
            in->start[i] = next_input(&inputs) % 4 == 0, in->acts[i] = next_input(&inputs) % 4 != 0;
        const struct lstm lstm = {
            .in_weight = in->in_weight, .state_weight = in->state_weight, .in_bias = in->in_bias,
            .state_bias = in->state_bias, .inputs = in->inputs, .state = in->state, .start = in->start, .acts = in->acts,
            .memory = in->memory, .tape = NULL, .steps = LSTM_STEPS, .rows = LSTM_ROWS, .in = LSTM_IN,
            .width = LSTM_WIDTH, .kept = 1, .threads = 2,
        };
        const struct lstm_gradient gradient = {
            .memory = in->back, .inputs = by->inputs, .state = by->state, .in_weight = by->in_weight,
            .state_weight = by->state_weight, .bias = by->in_bias,
        };
        struct lstm own = lstm;
        own.tape = tape = aligned_alloc(64, (set->lstm_tape(&lstm) * sizeof *tape + 63) / 64 * 64);
        failed = !tape || set->lstm(&own, NULL) || set->lstm(&own, &gradient);
        hashed = hash(hash(hashed, in->memory, sizeof in->memory), by, offsetof(struct inputs_of_lstm, memory));
    }
    free(in), free(by), free(tape);
    return failed ? 0 : hashed;
}

uint64_t fingerprint_dense(const char *name)
{
    static const int32_t apart[] = {7, 19, 18, 2, 7, 19, 18, 1}, numbers[] = {0, 0}, leaf[] = {0, 0};
    static const int32_t together[] = {5, 33, 33, 6, 33, 1}, kinds[] = {3, 0, 2}, leaves[] = {0, 1, 1};
    static const int32_t plain[] = {7, 19, 18, 3};
    const struct network one = {apart, numbers, leaf, {0, 3, 3}, 0, 0, 2, 2};
    const struct network other = {together, kinds, leaves, {1, 1, 1}, 1, 1, 3, 1};
    const struct network values = {plain, NULL, NULL, {0, 3, 0}, 1, 0, 0, 0};
    const struct network dueling = {together, NULL, NULL, {1, 1, 1}, 0, 1, 0, 0};
    static const int32_t soft[] = {AC_OBSERVED, 19, 2 * AC_ACTIONS}, hard[] = {AC_OBSERVED, 18, 17, AC_ACTIONS};
    static const int32_t critic[] = {AC_OBSERVED + AC_ACTIONS, 19, 18, 1};
    struct actor_critic_settings drawn = {
        .actor = soft, .critic = critic, .actor_layers = 2, .critic_layers = 3, .critics = 2, .soft = 1, .learned = 1,
        .target_every = 1, .actor_every = 1, .threads = 2, .target_entropy = -AC_ACTIONS, .tau = 0.125f,
        .adam = {0x1p-16f, 0.875f, 0.984375f},
    };
    struct actor_critic_settings fixed = drawn;
    fixed.actor = hard, fixed.actor_layers = 3, fixed.relu = 1, fixed.soft = fixed.learned = 0;
    fixed.target_every = fixed.actor_every = 2, fixed.target_noise = 0.25f, fixed.target_noise_clip = 0.125f;
    static const int32_t scores[] = {AC_OBSERVED, 19, AC_CHOICES}, valued[] = {AC_OBSERVED, 19, 18, AC_CHOICES};
    struct actor_critic_settings chosen = drawn;
    chosen.actor = scores, chosen.critic = valued, chosen.masked = 1, chosen.target_entropy = 0.75f;
    const struct dense_set *set = find_dense(name);
    uint64_t hashed = 1;
    for (int sparse = 0; hashed && sparse < 2; sparse++) {
        hashed = learn_recorded(set, &one, 7, sparse, hashed);
        if (hashed) hashed = learn_recorded(set, &other, 5 + 6, sparse, hashed);
    }
    if (hashed) hashed = learn_recorded_q(set, &values, 7, hashed);
    if (hashed) hashed = learn_recorded_q(set, &dueling, 5 + 6, hashed);
    if (hashed) hashed = learn_recorded_actor_critic(set, &drawn, hashed);
    if (hashed) hashed = learn_recorded_actor_critic(set, &fixed, hashed);
    if (hashed) hashed = learn_recorded_actor_critic(set, &chosen, hashed);
    return hashed ? remember_recorded(set, hashed) : 0;
}
