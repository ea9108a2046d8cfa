/* Outputs and a value on one trunk: how three chains make a network. */

#ifndef PADDOCK_NETWORK_H
#define PADDOCK_NETWORK_H

#include "chains.h"

enum { TRUNK, POLICY, VALUE };

struct model {
    const struct network *network;
    struct plan plan;
    int numbers, row, outputs; /* of an observation: numbers, and floats with what is legal */
};

/* `sparse`: rows have no numbers but what is legal. */
static int open_model(struct model *model, const struct network *network, int sparse)
{
    struct chain chains[CHAINS];
    const int32_t *sizes = network->sizes;
    for (int c = 0; c < CHAINS; c++) {
        const int layers = network->layers[c];
        const int further = c != TRUNK && network->layers[TRUNK] > 0;
        chains[c] = (struct chain){sizes, layers, c == TRUNK, further, sparse && !further};
        if (layers) sizes += layers + 1;
    }
    *model = (struct model){.network = network};
    if (open_plan(&model->plan, chains, CHAINS, network->log_stds, network->relu)) return -1;
    model->numbers = sparse ? 0 : chains[network->layers[TRUNK] ? TRUNK : POLICY].sizes[0];
    model->outputs = chains[POLICY].sizes[network->layers[POLICY]];
    model->row = model->numbers + (network->masked ? model->outputs : 0);
    return 0;
}

static void close_model(struct model *model) { close_plan(&model->plan); }

/* A block of rows, and what a network makes of it. */
struct values {
    const struct model *model;
    float *input; /* [BLOCK, row] */
    struct pass pass;
    float *by, *other, *third; /* [BLOCK, widest], gradients by outputs of a layer; in one piece with `input` */
};

static int open_values(struct values *values, const struct model *model)
{
    const size_t each = (size_t)BLOCK * model->plan.widest;
    *values = (struct values){.model = model, .by = zeros((3 * each + (size_t)BLOCK * model->row) * sizeof(float))};
    if (open_pass(&values->pass, &model->plan) || !values->by) return -1;
    values->other = values->by + each, values->third = values->other + each, values->input = values->third + each;
    return 0;
}

static void close_values(struct values *values)
{
    close_pass(&values->pass);
    free(values->by);
}

/* What the last layer of a chain gave, whose rows are as far apart as it is wide; NULL: there is no such chain. */
INLINE float *given_by(const struct values *values, int chain, int *wide)
{
    const int k = last_layer(&values->model->plan, chain);
    *wide = k < 0 ? 0 : values->model->plan.layers[k].wide;
    return k < 0 ? NULL : values->pass.outputs[k];
}

/* What outputs and values are computed from. */
INLINE const float *features_of(const struct values *values, int *apart)
{
    const float *features = given_by(values, TRUNK, apart);
    return features ? features : (*apart = values->model->row, values->input);
}

/* Compute a block of rows; without outputs where nobody asks for them. */
static void compute(const struct values *values, const float *parameters, int rows, int outputs)
{
    const struct model *model = values->model;
    int apart;
    go_forward(&values->pass, TRUNK, parameters, values->input, model->row, rows);
    const float *features = features_of(values, &apart);
    if (outputs) go_forward(&values->pass, POLICY, parameters, features, apart, rows);
    go_forward(&values->pass, VALUE, parameters, features, apart, rows);
}

#define LOWEST -3.4028235e38f /* of what is not legal: its probability is 0 */

static void forbid(const struct values *values, int rows)
{
    const struct model *model = values->model;
    int wide;
    float *output = given_by(values, POLICY, &wide);
    for (int b = 0; model->network->masked && b < rows; b++)
        for (int j = 0; j < model->outputs; j++)
            if (values->input[b * model->row + model->numbers + j] == 0) output[b * wide + j] = LOWEST;
}

/* Go back through a network, given gradients in place of what it gave, onto `gradient`. */
static void differentiate(const struct values *values, const float *back, int rows, float *gradient)
{
    const struct pass *pass = &values->pass;
    const struct plan *plan = &values->model->plan;
    const int trunk = last_layer(plan, TRUNK);
    int apart, wide;
    const float *features = features_of(values, &apart);
    float *given = given_by(values, POLICY, &wide);
    memcpy(values->by, given, (size_t)rows * wide * sizeof(float));
    float *one = go_back(pass, POLICY, back, features, apart, rows, values->by, values->other, gradient, trunk >= 0);
    float *spare = one == values->by ? values->other : values->by, *two = NULL;
    if ((given = given_by(values, VALUE, &wide))) {
        memcpy(spare, given, (size_t)rows * wide * sizeof(float));
        two = go_back(pass, VALUE, back, features, apart, rows, spare, values->third, gradient, trunk >= 0);
    }
    if (trunk < 0) return;
    const size_t count = (size_t)rows * apart;
    for (size_t i = 0; two && i < count; i += LANES) *(vf *)(one + i) += *(const vf *)(two + i);
    activation_gradient(features, one, count, plan->relu);
    go_back(pass, TRUNK, back, values->input, values->model->row, rows, one, two ? two : spare, gradient, 0);
}

#endif
