/* Network of three chains: trunk, policy and value. */

#ifndef PADDOCK_NETWORK_H
#define PADDOCK_NETWORK_H

#include "chains.h"

enum { TRUNK, POLICY, VALUE };

struct model {
    const struct network *network;
    struct plan plan;
    int numbers, row, outputs; /* features and row size (with mask) of an observation; outputs */
};

/* `sparse`: rows hold the action mask only. */
static int open_model(struct model *model, const struct network *network, int sparse)
{
    struct chain chains[CHAINS];
    const int32_t *sizes = network->sizes;
    for (int c = 0; c < CHAINS; c++) {
        const int layers = network->layers[c];
        const int input_gradient = c != TRUNK && network->layers[TRUNK] > 0;
        chains[c] = (struct chain){sizes, layers, c == TRUNK, input_gradient, sparse && !input_gradient};
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

/* A block of rows and its activations. */
struct values {
    const struct model *model;
    float *input; /* [BLOCK, row] */
    struct pass pass;
    float *grad, *other, *third; /* [BLOCK, widest], layer gradients; one allocation with `input` */
};

static int open_values(struct values *values, const struct model *model)
{
    const size_t each = (size_t)BLOCK * model->plan.widest;
    *values = (struct values){.model = model, .grad = zeros((3 * each + (size_t)BLOCK * model->row) * sizeof(float))};
    if (open_pass(&values->pass, &model->plan) || !values->grad) return -1;
    values->other = values->grad + each, values->third = values->other + each, values->input = values->third + each;
    return 0;
}

static void close_values(struct values *values)
{
    close_pass(&values->pass);
    free(values->grad);
}

/* Return the output of a chain and its row stride `wide`; NULL for an empty chain. */
INLINE float *chain_output(const struct values *values, int chain, int *wide)
{
    const int k = last_layer(&values->model->plan, chain);
    *wide = k < 0 ? 0 : values->model->plan.layers[k].wide;
    return k < 0 ? NULL : values->pass.outputs[k];
}

/* Return the input of policy and value. */
INLINE const float *features_of(const struct values *values, int *stride)
{
    const float *features = chain_output(values, TRUNK, stride);
    return features ? features : (*stride = values->model->row, values->input);
}

/* Forward pass of a block; `outputs`: compute the policy too. */
static void network_forward(const struct values *values, const float *parameters, int rows, int outputs)
{
    const struct model *model = values->model;
    int stride;
    chain_forward(&values->pass, TRUNK, parameters, values->input, model->row, rows);
    const float *features = features_of(values, &stride);
    if (outputs) chain_forward(&values->pass, POLICY, parameters, features, stride, rows);
    chain_forward(&values->pass, VALUE, parameters, features, stride, rows);
}

#define LOWEST -3.4028235e38f /* logit of illegal actions, whose probability is then 0 */

static void mask_outputs(const struct values *values, int rows)
{
    const struct model *model = values->model;
    int wide;
    float *output = chain_output(values, POLICY, &wide);
    for (int b = 0; model->network->masked && b < rows; b++)
        for (int j = 0; j < model->outputs; j++)
            if (values->input[b * model->row + model->numbers + j] == 0) output[b * wide + j] = LOWEST;
}

/* Backpropagate gradients, which have replaced the outputs, and accumulate them in `gradient`. */
static void network_backward(const struct values *values, const float *back, int rows, float *gradient)
{
    const struct pass *pass = &values->pass;
    const struct plan *plan = &values->model->plan;
    const int trunk = last_layer(plan, TRUNK);
    int stride, wide;
    const float *features = features_of(values, &stride);
    float *given = chain_output(values, POLICY, &wide);
    memcpy(values->grad, given, (size_t)rows * wide * sizeof(float));
    float *one =
        chain_backward(pass, POLICY, back, features, stride, rows, values->grad, values->other, gradient, trunk >= 0);
    float *spare = one == values->grad ? values->other : values->grad, *two = NULL;
    if ((given = chain_output(values, VALUE, &wide))) {
        memcpy(spare, given, (size_t)rows * wide * sizeof(float));
        two = chain_backward(pass, VALUE, back, features, stride, rows, spare, values->third, gradient, trunk >= 0);
    }
    if (trunk < 0) return;
    const size_t count = (size_t)rows * stride;
    for (size_t i = 0; two && i < count; i += LANES) *(vf *)(one + i) += *(const vf *)(two + i);
    activation_gradient(features, one, count, plan->relu);
    chain_backward(pass, TRUNK, back, values->input, values->model->row, rows, one, two ? two : spare, gradient, 0);
}

#endif
