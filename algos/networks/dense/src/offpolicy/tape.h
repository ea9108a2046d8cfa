/* Activations of a minibatch, and the step of Adam computed from them.
 *
 * Threads process rows independently. Then each chunk of weights sums its gradient over all rows in order, and takes its
 * step while it is in cache. */

#ifndef PADDOCK_TAPE_H
#define PADDOCK_TAPE_H

#include "../chains.h"
#include "../descent.h"

#define TAPE_CHUNK 64 /* weight rows per unit of work, which share copies of the gradients in product() */

struct tape {
    const struct plan *plan;
    float **outputs, **grad; /* [rows, wide] of each layer: activations; gradients of pre-activations */
};

static void close_tape(struct tape *tape)
{
    for (int k = 0; tape->plan && k < tape->plan->begin[tape->plan->chains]; k++) {
        if (tape->outputs) free(tape->outputs[k]);
        if (tape->grad) free(tape->grad[k]);
    }
    free(tape->outputs);
    free(tape->grad);
    *tape = (struct tape){0};
}

static int open_tape(struct tape *tape, const struct plan *plan, int64_t rows)
{
    const int layers = plan->begin[plan->chains];
    *tape = (struct tape){plan, zeros(layers * sizeof(float *)), zeros(layers * sizeof(float *))};
    for (int k = 0; tape->outputs && tape->grad && k < layers; k++) {
        tape->outputs[k] = zeros(rows * plan->layers[k].wide * sizeof(float));
        tape->grad[k] = zeros(rows * plan->layers[k].wide * sizeof(float));
        if (!tape->outputs[k] || !tape->grad[k]) return -1;
    }
    return tape->outputs && tape->grad ? 0 : -1;
}

/* Apply a chain to rows that are `stride` floats apart, stored as rows `first` .. of the tape. */
static void tape_forward(
    const struct tape *tape, int chain, const float *parameters, const float *in, int stride, int64_t first, int rows
)
{
    const struct plan *plan = tape->plan;
    float *outputs[plan->begin[plan->chains]];
    for (int k = plan->begin[chain]; k < plan->begin[chain + 1]; k++)
        outputs[k] = tape->outputs[k] + first * plan->layers[k].wide;
    const struct pass pass = {.plan = plan, .outputs = outputs};
    chain_forward(&pass, chain, parameters, in, stride, rows);
}

/* Backpropagate the gradients of a chain's output; those of its input are written to `grad_input` [rows, wide_in],
 * unless it is NULL. */
static void tape_backward(
    const struct tape *tape, int chain, const float *back, int64_t first, int rows, float *grad_input
)
{
    const struct plan *plan = tape->plan;
    for (int k = plan->begin[chain + 1] - 1; k >= plan->begin[chain]; k--) {
        const struct layer *layer = &plan->layers[k];
        const int inside = k > plan->begin[chain], wide = layer->wide_in;
        float *to = inside ? tape->grad[k - 1] + first * wide : grad_input;
        if (!to) continue;
        product(
            tape->grad[k] + first * layer->wide, layer->wide, 1, layer->out, back + layer->back, wide, NULL, 0, to,
            wide, rows, wide
        );
        if (inside) activation_gradient(tape->outputs[k - 1] + first * wide, to, (size_t)rows * wide, plan->relu);
    }
}

/* Compute the gradient of a chunk of a layer's weights, given the layer's input `in`. */
static void chunk_gradient(
    const struct chunk *chunk, const float *in, size_t stride, const float *grad, int64_t rows, float *gradient
)
{
    const size_t wide = chunk->wide;
    const int biased = chunk->last > chunk->layer->in, inputs = chunk->last - biased - chunk->first;
    float *onto = gradient + chunk->at;
    if (chunk->layer->out == 1 && stride == (size_t)chunk->layer->wide_in)
        for (int i = 0; i < inputs; i += LANES) { /* one SIMD lane per weight */
            vf sum = splat(0);
            for (int64_t row = 0; row < rows; row++)
                sum = fused(*(const vf_row *)(in + row * stride + chunk->first + i), splat(grad[row * wide]), sum);
            for (int k = 0; k < LANES && i + k < inputs; k++) onto[(i + k) * wide] = sum[k];
        }
    else
        for (int64_t row = 0; row < rows; row += PANEL_TERMS) {
            float columns[TAPE_CHUNK * PANEL_TERMS] __attribute__((aligned(64)));
            const int terms = rows - row < PANEL_TERMS ? (int)(rows - row) : PANEL_TERMS;
            transpose_rows(in + row * stride + chunk->first, stride, terms, inputs, columns, PANEL_TERMS);
            product(
                columns, PANEL_TERMS, 1, terms, grad + row * wide, wide, row ? onto : NULL, wide, onto, wide, inputs,
                (int)wide
            );
        }
    for (size_t j = 0; biased && j < wide; j += LANES) {
        vf sum = splat(0);
        for (int64_t row = 0; row < rows; row++) sum += *(const vf *)(grad + row * wide + j);
        *(vf *)(onto + inputs * wide + j) = sum;
    }
}

/* Take one step of Adam after the backward pass of all rows. Threads share the chunks, and must pass a barrier before
 * they use the parameters. `in` is the input of all chains; targets move by `tau`. */
static void step_from_tape(
    const struct tape *tape, const struct descent *descent, struct team *team, int member, const float *in, int stride,
    int64_t rows, const struct adam *adam, float rate, float deviation, float tau
)
{
    const struct plan *plan = tape->plan;
    team_barrier(team, member);
    for (int c = 1 + member; c < count_chunks(plan, TAPE_CHUNK); c += team->size) { /* chunk 0 is empty */
        const struct chunk chunk = chunk_of(plan, TAPE_CHUNK, c);
        const int k = chunk.layer - plan->layers;
        int begins = 0;
        for (int chain = 0; chain < plan->chains; chain++) begins |= k == plan->begin[chain];
        const float *input = begins ? in : tape->outputs[k - 1];
        const size_t input_stride = begins ? (size_t)stride : (size_t)chunk.layer->wide_in;
        chunk_gradient(&chunk, input, input_stride, tape->grad[k], rows, descent->gradient[0]);
        adam_step(descent, &chunk, adam, 1, rate, deviation);
        transpose_chunk(descent, &chunk);
        if (tau != 0) move_targets(descent, &chunk, tau);
    }
}

/* Update this thread's share of the targets. */
static void move_targets_share(const struct descent *descent, const struct team *team, int member, float tau)
{
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, CHUNK, c);
        move_targets(descent, &chunk, tau);
    }
}

#endif
