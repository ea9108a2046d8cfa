/* Memory layout of dense layers.
 *
 * Weights are [in][wide], followed by the bias [wide]. `wide` is the number of outputs rounded up to whole vectors; the
 * padding is always 0. The backward pass uses a transposed copy [out][wide_in]. */

#ifndef PADDOCK_LAYERS_H
#define PADDOCK_LAYERS_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dense.h"
#include "simd/functions.h"
#include "simd/product.h"
#include "simd/transpose.h"

#define MAX_CHAINS 3

/* A sequence of layers. */
struct chain {
    const int32_t *sizes; /* [layers + 1], widths */
    int layers;           /* 0: empty chain */
    int activated;        /* the last layer is activated too */
    int input_gradient;   /* compute gradients of the input */
    int sparse;           /* the input rows are sparse */
};

struct layer {
    int in, out, wide_in, wide;
    size_t at, flat, back; /* offsets in the padded, flat and transposed weights */
    int activated, transposed; /* transposed: has a transposed copy */
    int sparse; /* its input rows are sparse */
};

struct plan {
    struct layer *layers;
    int chains, begin[MAX_CHAINS + 1]; /* first layer of each chain */
    int leading;                        /* log standard deviations, stored before the layers */
    int relu;
    size_t parameters, flat, back; /* floats in each layout */
    int widest;
};

INLINE int round_up(int n) { return (n + LANES - 1) / LANES * LANES; }

#define HUGE_PAGE ((size_t)1 << 21)

/* Allocate zeros. Large arrays take huge pages: their physical pages are contiguous and displace each other less in the
 * second-level cache. */
static void *zeros(size_t bytes)
{
    const size_t align = bytes < HUGE_PAGE / 16 ? 64 : HUGE_PAGE, whole = (bytes + 64 + align - 1) / align * align;
    void *memory = aligned_alloc(align, whole);
#ifdef MADV_HUGEPAGE
    if (memory && align == HUGE_PAGE) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    return memory ? memset(memory, 0, bytes + 64) : NULL;
}

static int open_plan(struct plan *plan, const struct chain *chains, int count, int leading, int relu)
{
    int layers = 0;
    for (int c = 0; c < count; c++) layers += chains[c].layers;
    *plan = (struct plan){.layers = zeros(layers * sizeof *plan->layers), .chains = count, .leading = leading};
    if (!plan->layers) return -1;
    plan->relu = relu;
    plan->parameters = round_up(leading);
    plan->flat = leading;
    struct layer *layer = plan->layers;
    for (int c = 0; c < count; c++) {
        const struct chain *chain = &chains[c];
        plan->begin[c] = layer - plan->layers;
        for (int k = 0; k < chain->layers; k++, layer++) {
            const int in = chain->sizes[k], out = chain->sizes[k + 1];
            *layer = (struct layer){
                .in = in, .out = out, .wide_in = round_up(in), .wide = round_up(out), .at = plan->parameters,
                .flat = plan->flat, .back = plan->back, .activated = chain->activated || k + 1 < chain->layers,
                .transposed = chain->input_gradient || k > 0, .sparse = chain->sparse && k == 0,
            };
            plan->parameters += (size_t)(in + 1) * layer->wide;
            plan->flat += (size_t)(in + 1) * out;
            if (layer->transposed) plan->back += (size_t)out * layer->wide_in;
            if (layer->wide > plan->widest) plan->widest = layer->wide;
            if (layer->wide_in > plan->widest) plan->widest = layer->wide_in;
        }
    }
    plan->begin[count] = layers;
    return 0;
}

static void close_plan(struct plan *plan) { free(plan->layers); }

/* Copy flat parameters to the padded layout. */
static void pack(const struct plan *plan, const float *flat, float *packed)
{
    memcpy(packed, flat, plan->leading * sizeof *packed);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *weights = flat + layer->flat, *bias = weights + (size_t)layer->in * layer->out;
        float *to = packed + layer->at;
        for (int j = 0; j < layer->out; j++)
            for (int i = 0; i < layer->in; i++) to[(size_t)i * layer->wide + j] = weights[(size_t)j * layer->in + i];
        memcpy(to + (size_t)layer->in * layer->wide, bias, layer->out * sizeof *to);
    }
}

static void unpack(const struct plan *plan, const float *packed, float *flat)
{
    memcpy(flat, packed, plan->leading * sizeof *packed);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
        const struct layer *layer = &plan->layers[k];
        const float *from = packed + layer->at;
        float *weights = flat + layer->flat, *bias = weights + (size_t)layer->in * layer->out;
        for (int j = 0; j < layer->out; j++)
            for (int i = 0; i < layer->in; i++) weights[(size_t)j * layer->in + i] = from[(size_t)i * layer->wide + j];
        memcpy(bias, from + (size_t)layer->in * layer->wide, layer->out * sizeof *bias);
    }
}

#endif
