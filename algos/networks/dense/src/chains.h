/* Forward and backward pass of a block of rows through a chain of dense layers. */

#ifndef PADDOCK_CHAINS_H
#define PADDOCK_CHAINS_H

#include "layers.h"
#include "simd/gather.h"

/* Layer outputs of one block of rows. */
struct pass {
    const struct plan *plan;
    float **outputs;             /* of each layer [BLOCK, wide] */
    const struct sparse *sparse; /* input of sparse layers, or NULL */
    const int64_t *order;        /* [rows], indices of the block's rows in `sparse` */
    uint8_t *touched;            /* input columns seen so far */
};

/* One sparse row of a block. */
struct sparse_row {
    const uint16_t *index;
    const float *value;
    int count;
};

INLINE struct sparse_row sparse_row(const struct pass *pass, int row)
{
    const struct sparse *sparse = pass->sparse;
    const int64_t first = sparse->starts[pass->order[row]], last = sparse->starts[pass->order[row] + 1];
    const float *value = sparse->value ? sparse->value + first : NULL;
    return (struct sparse_row){sparse->index + first, value, (int)(last - first)};
}

static int open_pass(struct pass *pass, const struct plan *plan)
{
    const int count = plan->begin[plan->chains];
    *pass = (struct pass){.plan = plan, .outputs = zeros(count * sizeof(float *))};
    for (int k = 0; pass->outputs && k < count; k++)
        if (!(pass->outputs[k] = zeros((size_t)BLOCK * plan->layers[k].wide * sizeof(float)))) return -1;
    return pass->outputs ? 0 : -1;
}

static void close_pass(struct pass *pass)
{
    for (int k = 0; pass->outputs && k < pass->plan->begin[pass->plan->chains]; k++) free(pass->outputs[k]);
    free(pass->outputs);
}

/* Return the last layer of a chain; -1 if the chain is empty. */
INLINE int last_layer(const struct plan *plan, int chain)
{
    return plan->begin[chain + 1] > plan->begin[chain] ? plan->begin[chain + 1] - 1 : -1;
}

static void activate(float *x, size_t count, int relu)
{
    for (size_t i = 0; i < count; i += LANES) {
        vf *at = (vf *)(x + i);
        *at = activated(*at, relu);
    }
}

/* Multiply gradients by the derivative of the activation, given its output h. */
static void activation_gradient(const float *h, float *grad, size_t count, int relu)
{
    for (size_t i = 0; i < count; i += LANES) {
        const vf given = *(const vf *)(h + i);
        vf *at = (vf *)(grad + i);
        *at = relu ? keep(given > splat(0), *at) : *at * (1.0f - given * given);
    }
}

/* Apply a layer with one output to rows [rows, wide_in], written to out[row * wide]; one SIMD lane per row. */
static void single_output(const struct layer *layer, const float *weights, const float *in, int rows, float *out)
{
    const size_t wide = layer->wide, stride = layer->wide_in;
    for (int first = 0; first < rows; first += LANES) {
        vf block[LANES], sum = splat(weights[layer->in * wide]);
        for (int i = 0; i < layer->in; i += LANES) {
            for (int r = 0; r < LANES; r++)
                block[r] = *(const vf *)(in + (first + r < rows ? first + r : first) * stride + i);
            transpose(block);
            for (int k = 0; k < LANES && i + k < layer->in; k++)
                sum = fused(block[k], splat(weights[(i + k) * wide]), sum);
        }
        for (int r = 0; r < LANES && first + r < rows; r++) out[(first + r) * wide] = sum[r];
    }
}

/* Apply a layer to a block of sparse rows. */
static void gather_layer(const struct pass *pass, const struct layer *layer, const float *weights, int rows, float *out)
{
    const int wide = layer->wide;
    for (int row = 0; row < rows; row++) {
        const struct sparse_row entries = sparse_row(pass, row);
        gather_product(
            entries.index, entries.value, entries.count, weights, wide, weights + (size_t)layer->in * wide,
            out + row * wide, wide
        );
    }
}

/* Apply a chain to rows that are `stride` floats apart, and keep the outputs of each layer. */
static void chain_forward(
    const struct pass *pass, int chain, const float *parameters, const float *in, int stride, int rows
)
{
    const struct plan *plan = pass->plan;
    for (int k = plan->begin[chain]; k < plan->begin[chain + 1]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *weights = parameters + layer->at;
        if (layer->sparse) gather_layer(pass, layer, weights, rows, pass->outputs[k]);
        else if (layer->out == 1 && k > plan->begin[chain]) single_output(layer, weights, in, rows, pass->outputs[k]);
        else
            product(
                in, stride, 1, layer->in, weights, layer->wide, weights + (size_t)layer->in * layer->wide, 0,
                pass->outputs[k], layer->wide, rows, layer->wide
            );
        if (layer->activated) activate(pass->outputs[k], (size_t)rows * layer->wide, plan->relu);
        in = pass->outputs[k], stride = layer->wide;
    }
}

/* Accumulate a layer's weight gradient over a block of sparse rows. */
static void scatter_layer(const struct pass *pass, const struct layer *layer, const float *grad, int count, float *onto)
{
    for (int row = 0; row < count; row++) {
        const struct sparse_row entries = sparse_row(pass, row);
        for (int k = 0; k < entries.count; k++) pass->touched[entries.index[k]] = 1;
        scatter_gradient(
            entries.index, entries.value, entries.count, grad + (size_t)row * layer->wide, onto, layer->wide,
            layer->wide
        );
    }
}

/* Accumulate a layer's gradient of weights and bias. */
static void weights_gradient(
    const struct pass *pass, const struct layer *layer, const float *in, int stride, const float *grad, int count,
    float *onto
)
{
    const int wide = layer->wide;
    if (layer->sparse) scatter_layer(pass, layer, grad, count, onto);
    else product(in, 1, stride, count, grad, wide, onto, wide, onto, wide, layer->in, wide);
    float *bias = onto + (size_t)layer->in * wide;
    for (int j = 0; j < wide; j += LANES) {
        vf sum = *(const vf *)(bias + j);
        for (int b = 0; b < count; b++) sum += *(const vf *)(grad + (size_t)b * wide + j);
        *(vf *)(bias + j) = sum;
    }
}

/* Backpropagate through a chain after its forward pass on these rows. `grad` [rows, wide] holds gradients of the last
 * layer's pre-activations. Gradients of weights and biases are accumulated in `gradient`, unless it is NULL. With
 * `input_gradient`, return the gradients of the chain's input [rows, wide_in] (after its activation, if it has one), in
 * `grad` or `other`, both as wide as the plan's widest layer; otherwise NULL. */
static float *chain_backward(
    const struct pass *pass, int chain, const float *back, const float *in, int stride, int rows, float *grad,
    float *other, float *gradient, int input_gradient
)
{
    const struct plan *plan = pass->plan;
    const int first = plan->begin[chain];
    for (int k = plan->begin[chain + 1] - 1; k >= first; k--) {
        const struct layer *layer = &plan->layers[k];
        const float *input = k > first ? pass->outputs[k - 1] : in;
        const int wide = layer->wide_in;
        if (gradient) weights_gradient(pass, layer, input, k > first ? wide : stride, grad, rows, gradient + layer->at);
        if (k == first && !input_gradient) return NULL;
        product(grad, layer->wide, 1, layer->out, back + layer->back, wide, NULL, 0, other, wide, rows, wide);
        float *swap = grad;
        grad = other, other = swap;
        if (k > first) activation_gradient(input, grad, (size_t)rows * wide, plan->relu);
    }
    return grad;
}

#endif
