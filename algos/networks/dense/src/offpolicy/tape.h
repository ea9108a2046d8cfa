/* What a minibatch leaves of its way through chains of layers, and the step of Adam that is taken of it.
 *
 * Rows are computed apart from each other, by whichever thread. Then each chunk of weights sums its gradient over all,
 * of a part after the other, and takes its step while it is at hand: no gradient of a part is ever written down. */

#ifndef PADDOCK_TAPE_H
#define PADDOCK_TAPE_H

#include "../chains.h"
#include "../descent.h"

struct tape {
    const struct plan *plan;
    float **outputs, **by; /* of each layer [rows, wide]: what it gave, and gradients by that before it was activated */
};

static void close_tape(struct tape *tape)
{
    for (int k = 0; tape->plan && k < tape->plan->begin[tape->plan->chains]; k++) {
        if (tape->outputs) free(tape->outputs[k]);
        if (tape->by) free(tape->by[k]);
    }
    free(tape->outputs);
    free(tape->by);
    *tape = (struct tape){0};
}

static int open_tape(struct tape *tape, const struct plan *plan, int64_t rows)
{
    const int layers = plan->begin[plan->chains];
    *tape = (struct tape){plan, zeros(layers * sizeof(float *)), zeros(layers * sizeof(float *))};
    for (int k = 0; tape->outputs && tape->by && k < layers; k++) {
        tape->outputs[k] = zeros(rows * plan->layers[k].wide * sizeof(float));
        tape->by[k] = zeros(rows * plan->layers[k].wide * sizeof(float));
        if (!tape->outputs[k] || !tape->by[k]) return -1;
    }
    return tape->outputs && tape->by ? 0 : -1;
}

/* Compute a chain on rows that lie `apart` floats from each other, as rows `first` .. of the tape. */
static void run(
    const struct tape *tape, int chain, const float *parameters, const float *in, int apart, int64_t first, int rows
)
{
    const struct plan *plan = tape->plan;
    float *outputs[plan->begin[plan->chains]];
    for (int k = plan->begin[chain]; k < plan->begin[chain + 1]; k++)
        outputs[k] = tape->outputs[k] + first * plan->layers[k].wide;
    const struct pass pass = {.plan = plan, .outputs = outputs};
    go_forward(&pass, chain, parameters, in, apart, rows);
}

/* Go back through a chain, given gradients by what its last layer gave; those by what the chain took are written to
 * `by_input` [rows, wide_in], unless that is NULL. */
static void run_back(
    const struct tape *tape, int chain, const float *back, int64_t first, int rows, float *by_input
)
{
    const struct plan *plan = tape->plan;
    for (int k = plan->begin[chain + 1] - 1; k >= plan->begin[chain]; k--) {
        const struct layer *layer = &plan->layers[k];
        const int inside = k > plan->begin[chain], wide = layer->wide_in;
        float *to = inside ? tape->by[k - 1] + first * wide : by_input;
        if (!to) continue;
        product(
            tape->by[k] + first * layer->wide, layer->wide, 1, layer->out, back + layer->back, wide, NULL, to, wide,
            rows, wide
        );
        if (inside) activation_gradient(tape->outputs[k - 1] + first * wide, to, (size_t)rows * wide, plan->relu);
    }
}

/* onto[i][v] += the sum over rows of a[row * apart + i] * by[row * wide + v]; `fresh`: there is nothing yet. */
INLINE void part_tile(
    const float *a, size_t apart, const float *by, size_t wide, float *onto, int count, int fresh, int tall, int vectors
)
{
    vf sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < tall; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = splat(0);
    for (int row = 0; row < count; row++, a += apart, by += wide) {
        vf other[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) other[v] = *(const vf_row *)(by + v * LANES);
        for (int i = 0; i < tall; i++)
            for (int v = 0; v < vectors; v++) sum[i][v] += a[i] * other[v];
    }
    for (int i = 0; i < tall; i++)
        for (int v = 0; v < vectors; v++) {
            vf_row *to = (vf_row *)(onto + i * wide + v * LANES);
            *to = fresh ? sum[i][v] : (vf)*to + sum[i][v];
        }
}

/* The same of the only output of a layer: a lane for each of LANES weights, of which `tall` are there. */
INLINE void single_tile(
    const float *a, size_t apart, const float *by, size_t wide, float *onto, int count, int fresh, int tall
)
{
    vf sum = splat(0);
    for (int row = 0; row < count; row++) sum += *(const vf_row *)(a + row * apart) * by[row * wide];
    for (int i = 0; i < tall; i++) onto[i * wide] = fresh ? sum[i] : onto[i * wide] + sum[i];
}

/* The gradient of a chunk of a layer's weights, which takes `in`. */
static void chunk_gradient(
    const struct chunk *chunk, const float *in, size_t apart, const float *by, int64_t rows, float *gradient
)
{
    const size_t wide = chunk->wide;
    const int parts = count_parts(rows), biased = chunk->last > chunk->layer->in, last = chunk->last - biased;
    float *onto = gradient + chunk->at;
    for (int j = 0; j < chunk->wide;) {
        const int many = j + TILE_VECTORS * LANES <= chunk->wide;
        for (int p = 0; p < parts; p++) {
            const int64_t first = part_of(rows, parts, p);
            const int count = (int)(part_of(rows, parts, p + 1) - first);
            const float *a = in + first * apart, *by_j = by + first * wide + j;
            int i = chunk->first;
#define TILE(tall, vectors) \
    part_tile(a + i, apart, by_j, wide, onto + (i - chunk->first) * wide + j, count, p == 0, tall, vectors)
            if (chunk->layer->out == 1 && apart == (size_t)chunk->layer->wide_in) {
                for (; i < last; i += LANES) {
                    const int tall = last - i < LANES ? last - i : LANES;
                    single_tile(a + i, apart, by_j, wide, onto + (i - chunk->first) * wide, count, p == 0, tall);
                }
            } else if (many) {
                for (; i + TILE_ROWS <= last; i += TILE_ROWS) TILE(TILE_ROWS, TILE_VECTORS);
                for (; i < last; i++) TILE(1, TILE_VECTORS);
            } else {
                for (; i + TILE_ROWS <= last; i += TILE_ROWS) TILE(TILE_ROWS, 1);
                for (; i < last; i++) TILE(1, 1);
            }
#undef TILE
            for (int v = 0; biased && v < (many ? TILE_VECTORS : 1); v++) {
                vf sum = splat(0), *to = (vf *)(onto + (last - chunk->first) * wide + j + v * LANES);
                for (int b = 0; b < count; b++) sum += *(const vf *)(by_j + b * wide + v * LANES);
                *to = p == 0 ? sum : *to + sum;
            }
        }
        j += many ? TILE_VECTORS * LANES : LANES;
    }
}

/* Take one step of Adam, once every row has gone back: each member of a team does its share, and has to meet the others
 * before it uses the parameters. Chains take `in`; targets move by `tau`, unless it is 0. */
static void step_by_tape(
    const struct tape *tape, const struct descent *descent, struct team *team, int member, const float *in, int apart,
    int64_t rows, const struct adam *adam, float rate, float deviation, float tau
)
{
    const struct plan *plan = tape->plan;
    meet(team, member);
    for (int c = 1 + member; c < descent->chunks; c += team->size) { /* nothing stands before the layers */
        const struct chunk chunk = chunk_of(plan, c);
        const int k = chunk.layer - plan->layers;
        int begins = 0;
        for (int chain = 0; chain < plan->chains; chain++) begins |= k == plan->begin[chain];
        const float *taken = begins ? in : tape->outputs[k - 1];
        const size_t taken_apart = begins ? (size_t)apart : (size_t)chunk.layer->wide_in;
        chunk_gradient(&chunk, taken, taken_apart, tape->by[k], rows, descent->gradient[0]);
        descend(descent, &chunk, adam, 1, rate, deviation);
        turn(descent, &chunk);
        if (tau != 0) approach(descent, &chunk, tau);
    }
}

/* Move this member's share of the targets. */
static void approach_share(const struct descent *descent, const struct team *team, int member, float tau)
{
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, c);
        approach(descent, &chunk, tau);
    }
}

#endif
