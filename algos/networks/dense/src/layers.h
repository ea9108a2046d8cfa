/* Where the layers of a dense network lie while it is computed, and the way forward through them.
 *
 * A layer's weights are [in][wide], then comes its bias [wide]: `wide` is its outputs, rounded up to whole vectors, of
 * which those beyond the outputs are zeros and stay so. For the way back they lie transposed, [out][wide_in], as well. */

#ifndef PADDOCK_LAYERS_H
#define PADDOCK_LAYERS_H

#include <stdlib.h>
#include <string.h>

#include "dense.h"
#include "simd/functions.h"
#include "simd/product.h"
#include "simd/zip.h"

enum chain { TRUNK, POLICY, VALUE };

struct layer {
    int in, out, wide_in, wide;
    size_t at, flat, back; /* in the network's own order, in the flat vector, and in the transposed copy */
    int activated, first, sees; /* first: of its chain; sees: takes observations */
};

struct plan {
    const struct network *network;
    struct layer *layers;
    int begin[CHAINS + 1];        /* which layers are of which chain */
    int numbers, row, outputs;    /* of an observation: numbers, and floats with what is legal */
    size_t parameters, flat, back; /* floats in each order */
    int widest;
};

INLINE int whole(int n) { return (n + LANES - 1) / LANES * LANES; }

static void *zeros(size_t bytes)
{
    bytes = (bytes + 64 + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static int open_plan(struct plan *plan, const struct network *network)
{
    int count = network->layers[TRUNK] + network->layers[POLICY] + network->layers[VALUE];
    *plan = (struct plan){.network = network, .layers = zeros(count * sizeof *plan->layers)};
    if (!plan->layers) return -1;
    plan->parameters = whole(network->log_stds);
    plan->flat = network->log_stds;
    const int32_t *sizes = network->sizes;
    struct layer *layer = plan->layers;
    for (int chain = 0; chain < CHAINS; chain++) {
        plan->begin[chain] = layer - plan->layers;
        for (int k = 0; k < network->layers[chain]; k++, layer++, sizes++) {
            *layer = (struct layer){
                .in = sizes[0], .out = sizes[1], .wide_in = whole(sizes[0]), .wide = whole(sizes[1]),
                .at = plan->parameters, .flat = plan->flat, .back = plan->back,
                .activated = chain == TRUNK || k + 1 < network->layers[chain], .first = k == 0,
                .sees = k == 0 && (chain == TRUNK || !network->layers[TRUNK]),
            };
            plan->parameters += (size_t)(layer->in + 1) * layer->wide;
            plan->flat += (size_t)(layer->in + 1) * layer->out;
            plan->back += (size_t)layer->out * layer->wide_in;
            if (layer->wide > plan->widest) plan->widest = layer->wide;
            if (layer->wide_in > plan->widest) plan->widest = layer->wide_in;
        }
        if (network->layers[chain]) sizes++;
    }
    plan->begin[CHAINS] = count;
    plan->numbers = network->layers[TRUNK] ? plan->layers[0].in : plan->layers[plan->begin[POLICY]].in;
    plan->outputs = plan->layers[plan->begin[VALUE] - 1].out;
    plan->row = plan->numbers + (network->masked ? plan->outputs : 0);
    return 0;
}

/* Between the flat vector and the network's own order. */
static void take_in(const struct plan *plan, const float *flat, float *own)
{
    memcpy(own, flat, plan->network->log_stds * sizeof *own);
    for (int k = 0; k < plan->begin[CHAINS]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *weights = flat + layer->flat, *bias = weights + (size_t)layer->in * layer->out;
        float *to = own + layer->at;
        for (int j = 0; j < layer->out; j++)
            for (int i = 0; i < layer->in; i++) to[(size_t)i * layer->wide + j] = weights[(size_t)j * layer->in + i];
        memcpy(to + (size_t)layer->in * layer->wide, bias, layer->out * sizeof *to);
    }
}

static void give_back(const struct plan *plan, const float *own, float *flat)
{
    memcpy(flat, own, plan->network->log_stds * sizeof *own);
    for (int k = 0; k < plan->begin[CHAINS]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *from = own + layer->at;
        float *weights = flat + layer->flat, *bias = weights + (size_t)layer->in * layer->out;
        for (int j = 0; j < layer->out; j++)
            for (int i = 0; i < layer->in; i++) weights[(size_t)j * layer->in + i] = from[(size_t)i * layer->wide + j];
        memcpy(bias, from + (size_t)layer->in * layer->wide, layer->out * sizeof *bias);
    }
}

/* What each layer made of a block of rows. */
struct values {
    float *input;   /* [BLOCK, row] */
    float **output; /* of each layer [BLOCK, wide] */
};

static int open_values(struct values *values, const struct plan *plan)
{
    int count = plan->begin[CHAINS];
    *values = (struct values){zeros(BLOCK * plan->row * sizeof(float)), zeros(count * sizeof(float *))};
    for (int k = 0; values->output && k < count; k++)
        if (!(values->output[k] = zeros((size_t)BLOCK * plan->layers[k].wide * sizeof(float)))) return -1;
    return values->input && values->output ? 0 : -1;
}

static void close_values(struct values *values, const struct plan *plan)
{
    for (int k = 0; values->output && k < plan->begin[CHAINS]; k++) free(values->output[k]);
    free(values->output);
    free(values->input);
}

static void activate(float *x, size_t count, int relu)
{
    for (size_t i = 0; i < count; i += LANES) {
        vf *at = (vf *)(x + i);
        *at = activated(*at, relu);
    }
}

/* What a layer is computed from, and how far its rows are apart. */
INLINE const float *input_of(const struct plan *plan, const struct values *values, int k, int *apart)
{
    const int trunk = plan->begin[POLICY];
    if (!plan->layers[k].first) return *apart = plan->layers[k - 1].wide, values->output[k - 1];
    if (plan->layers[k].sees) return *apart = plan->row, values->input;
    return *apart = plan->layers[trunk - 1].wide, values->output[trunk - 1];
}

#define LOWEST -3.4028235e38f /* of what is not legal: its probability is 0 */

/* Compute a block of rows; without outputs where nobody asks for them. */
static void go_forward(const struct plan *plan, const float *parameters, struct values *values, int rows, int outputs)
{
    for (int k = 0; k < plan->begin[CHAINS]; k++) {
        if (k == plan->begin[POLICY] && !outputs) k = plan->begin[VALUE];
        const struct layer *layer = &plan->layers[k];
        const float *weights = parameters + layer->at;
        int apart;
        const float *in = input_of(plan, values, k, &apart);
        product(
            in, apart, 1, layer->in, weights, layer->wide, weights + (size_t)layer->in * layer->wide,
            values->output[k], layer->wide, rows, layer->wide
        );
        if (layer->activated) activate(values->output[k], (size_t)rows * layer->wide, plan->network->relu);
    }
    if (!plan->network->masked || !outputs) return;
    const struct layer *last = &plan->layers[plan->begin[VALUE] - 1];
    for (int b = 0; b < rows; b++)
        for (int j = 0; j < plan->outputs; j++)
            if (values->input[b * plan->row + plan->numbers + j] == 0)
                values->output[plan->begin[VALUE] - 1][b * last->wide + j] = LOWEST;
}

#endif
