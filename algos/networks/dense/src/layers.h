/* Where the layers of dense networks lie while they are computed.
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
#include "simd/transpose.h"

#define MOST_CHAINS 3

/* Layers of which each takes what the one before it gives. */
struct chain {
    const int32_t *sizes; /* [layers + 1], widths from input to output */
    int layers;           /* 0: there is none */
    int activated;        /* the last layer too */
    int further;          /* whether gradients by what it takes are asked for */
    int sparse;           /* what it takes are rows that are almost all zeros */
};

struct layer {
    int in, out, wide_in, wide;
    size_t at, flat, back; /* in the network's own order, in the flat vector, and in the transposed copy */
    int activated, turned; /* turned: there is a transposed copy */
    int sparse; /* whether it takes rows that are almost all zeros */
};

struct plan {
    struct layer *layers;
    int chains, begin[MOST_CHAINS + 1]; /* which layers are of which chain */
    int leading;                        /* numbers before the layers: log standard deviations */
    int relu;
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

static int open_plan(struct plan *plan, const struct chain *chains, int count, int leading, int relu)
{
    int layers = 0;
    for (int c = 0; c < count; c++) layers += chains[c].layers;
    *plan = (struct plan){.layers = zeros(layers * sizeof *plan->layers), .chains = count, .leading = leading};
    if (!plan->layers) return -1;
    plan->relu = relu;
    plan->parameters = whole(leading);
    plan->flat = leading;
    struct layer *layer = plan->layers;
    for (int c = 0; c < count; c++) {
        const struct chain *chain = &chains[c];
        plan->begin[c] = layer - plan->layers;
        for (int k = 0; k < chain->layers; k++, layer++) {
            const int in = chain->sizes[k], out = chain->sizes[k + 1];
            *layer = (struct layer){
                .in = in, .out = out, .wide_in = whole(in), .wide = whole(out), .at = plan->parameters,
                .flat = plan->flat, .back = plan->back, .activated = chain->activated || k + 1 < chain->layers,
                .turned = chain->further || k > 0, .sparse = chain->sparse && k == 0,
            };
            plan->parameters += (size_t)(in + 1) * layer->wide;
            plan->flat += (size_t)(in + 1) * out;
            if (layer->turned) plan->back += (size_t)out * layer->wide_in;
            if (layer->wide > plan->widest) plan->widest = layer->wide;
            if (layer->wide_in > plan->widest) plan->widest = layer->wide_in;
        }
    }
    plan->begin[count] = layers;
    return 0;
}

static void close_plan(struct plan *plan) { free(plan->layers); }

/* Between the flat vector and the network's own order. */
static void take_in(const struct plan *plan, const float *flat, float *own)
{
    memcpy(own, flat, plan->leading * sizeof *own);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
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
    memcpy(flat, own, plan->leading * sizeof *own);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *from = own + layer->at;
        float *weights = flat + layer->flat, *bias = weights + (size_t)layer->in * layer->out;
        for (int j = 0; j < layer->out; j++)
            for (int i = 0; i < layer->in; i++) weights[(size_t)j * layer->in + i] = from[(size_t)i * layer->wide + j];
        memcpy(bias, from + (size_t)layer->in * layer->wide, layer->out * sizeof *bias);
    }
}

#endif
