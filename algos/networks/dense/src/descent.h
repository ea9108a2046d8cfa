/* Sharded gradients of a minibatch and the optimizer step (Adam).
 *
 * The number of shards depends on the minibatch size only. Each shard sums its gradient in row order, and shards are
 * summed in order, so results do not depend on the number of threads. */

#ifndef PADDOCK_DESCENT_H
#define PADDOCK_DESCENT_H

#include <math.h>

#include "layers.h"

/* Optimizer state, in the plan's order. */
struct descent {
    const struct plan *plan;
    float *parameters, *momentum, *variance;
    float *targets; /* target network, or NULL */
    float *back;    /* transposed weights */
    float *gradient[MAX_SHARDS];
    uint8_t *touched[MAX_SHARDS]; /* weight rows of sparse layers with nonzero gradients, or NULL */
    float *norms; /* sum of squares of each chunk */
    int chunks;
};

/* Weight rows [first, last) of a layer, whose last row is the bias; chunk 0 holds the log standard deviations. */
struct chunk {
    const struct layer *layer; /* NULL for chunk 0 */
    int first, last;
    size_t at, count; /* floats */
    int wide;
};

static int64_t shard_start(int64_t rows, int shards, int shard) { return rows * shard / shards; }

static int count_shards(int64_t rows, int least)
{
    int64_t shards = rows / least;
    return shards < 1 ? 1 : shards > MAX_SHARDS ? MAX_SHARDS : (int)shards;
}

/* Return the number of chunks of at most `size` weight rows. */
static int count_chunks(const struct plan *plan, int size)
{
    int chunks = 1;
    for (int k = 0; k < plan->begin[plan->chains]; k++) chunks += (plan->layers[k].in + size) / size;
    return chunks;
}

static struct chunk chunk_of(const struct plan *plan, int size, int number)
{
    const int leading = round_up(plan->leading);
    if (number == 0) return (struct chunk){.count = leading, .wide = leading};
    const struct layer *layer = plan->layers;
    for (number--; number >= (layer->in + size) / size; layer++) number -= (layer->in + size) / size;
    const int first = number * size, last = first + size < layer->in + 1 ? first + size : layer->in + 1;
    return (struct chunk){
        layer, first, last, layer->at + (size_t)first * layer->wide, (size_t)(last - first) * layer->wide, layer->wide,
    };
}

/* Allocate the gradients of the shards. */
static int open_shards(struct descent *descent, int shards)
{
    const struct plan *plan = descent->plan;
    const int sparse = plan->layers[0].sparse;
    for (int p = 0; p < shards; p++) {
        float **gradient = &descent->gradient[p];
        uint8_t **touched = &descent->touched[p];
        if (!*gradient && !(*gradient = zeros(plan->parameters * sizeof(float)))) return -1;
        if (sparse && !*touched && !(*touched = zeros(plan->layers[0].in))) return -1;
    }
    return 0;
}

/* Zero a shard's gradient; sparse layers clear touched rows only. */
static void clear_shard(const struct descent *descent, int shard)
{
    const struct plan *plan = descent->plan;
    float *gradient = descent->gradient[shard];
    uint8_t *touched = descent->touched[shard];
    memset(gradient, 0, round_up(plan->leading) * sizeof *gradient);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
        const struct layer *layer = &plan->layers[k];
        const size_t wide = layer->wide, bytes = wide * sizeof *gradient;
        float *layer_gradient = gradient + layer->at;
        for (int i = 0; layer->sparse && i < layer->in; i++)
            if (touched[i]) memset(layer_gradient + i * wide, 0, bytes);
        if (layer->sparse) memset(layer_gradient + layer->in * wide, 0, bytes);
        else memset(layer_gradient, 0, (layer->in + 1) * bytes);
    }
    if (touched) memset(touched, 0, plan->layers[0].in);
}

static int open_descent(struct descent *descent, const struct plan *plan, int targets)
{
    const size_t bytes = plan->parameters * sizeof(float);
    const int chunks = count_chunks(plan, CHUNK);
    *descent = (struct descent){
        .plan = plan, .parameters = zeros(bytes), .momentum = zeros(bytes), .variance = zeros(bytes),
        .targets = targets ? zeros(bytes) : NULL, .back = zeros(plan->back * sizeof(float)),
        .norms = zeros(chunks * sizeof(float)), .chunks = chunks,
    };
    return descent->parameters && descent->momentum && descent->variance && (descent->targets || !targets) &&
           descent->back && descent->norms ? 0 : -1;
}

static void close_descent(struct descent *descent)
{
    for (int p = 0; p < MAX_SHARDS; p++) free(descent->gradient[p]), free(descent->touched[p]);
    free(descent->parameters);
    free(descent->momentum);
    free(descent->variance);
    free(descent->targets);
    free(descent->back);
    free(descent->norms);
}

/* Return whether any shard has a nonzero gradient in this weight row, and mark the row in the first shard. */
static int is_touched(const struct descent *descent, const struct chunk *chunk, int row, int shards)
{
    if (!chunk->layer || !chunk->layer->sparse || row == chunk->layer->in) return 1;
    int any = 0;
    for (int p = 0; p < shards; p++) any |= __atomic_load_n(&descent->touched[p][row], __ATOMIC_RELAXED);
    if (any) __atomic_store_n(&descent->touched[0][row], 1, __ATOMIC_RELAXED);
    return any;
}

/* Sum the shards' gradients and their squares. Squares accumulate by column modulo 16, in the same order at every
 * vector width. Sums that start from 0 are never -0, so skipping zeros is exact. */
static float sum_shards(const struct descent *descent, const struct chunk *chunk, int shards)
{
    float *const *gradient = descent->gradient;
    vf squares[16 / LANES];
    for (int v = 0; v < 16 / LANES; v++) squares[v] = splat(0);
    int row = chunk->first;
    for (size_t from = 0; from < chunk->count; from += chunk->wide, row++) {
        if (!is_touched(descent, chunk, row, shards)) continue;
        for (int j = 0; j < chunk->wide; j += LANES) {
            const size_t i = chunk->at + from + j;
            vf sum = *(const vf *)(gradient[0] + i);
            for (int p = 1; p < shards; p++) sum += *(const vf *)(gradient[p] + i);
            *(vf *)(gradient[0] + i) = sum;
            squares[j / LANES % (16 / LANES)] += sum * sum;
        }
    }
    float total = 0;
    for (int k = 0; k < 16; k++) total += squares[k / LANES][k % LANES];
    return total;
}

/* One step of Adam (Kingma & Ba 2015, arXiv:1412.6980). */
static void adam_step(
    const struct descent *descent, const struct chunk *chunk, const struct adam *adam, float factor, float rate,
    float deviation
)
{
    const float keep_m = adam->momentum_decay, keep_v = adam->variance_decay, epsilon = adam->epsilon;
    for (size_t i = chunk->at; i < chunk->at + chunk->count; i += LANES) {
        vf *parameter = (vf *)(descent->parameters + i), *momentum = (vf *)(descent->momentum + i);
        vf *variance = (vf *)(descent->variance + i), gradient = *(const vf *)(descent->gradient[0] + i) * factor;
        *momentum = *momentum * keep_m + gradient * (1 - keep_m);
        *variance = *variance * keep_v + (gradient * gradient) * (1 - keep_v);
        *parameter -= (*momentum * rate) / (root(*variance) * deviation + epsilon);
    }
}

/* Polyak update of the targets; tau = 1 copies. */
static void move_targets(const struct descent *descent, const struct chunk *chunk, float tau)
{
    if (tau == 1) {
        memcpy(descent->targets + chunk->at, descent->parameters + chunk->at, chunk->count * sizeof(float));
        return;
    }
    for (size_t i = chunk->at; i < chunk->at + chunk->count; i += LANES) {
        vf *target = (vf *)(descent->targets + i);
        *target += (*(const vf *)(descent->parameters + i) - *target) * tau;
    }
}

/* Copy a chunk to the transposed weights. */
static void transpose_chunk(const struct descent *descent, const struct chunk *chunk)
{
    const struct layer *layer = chunk->layer;
    if (!layer || !layer->transposed) return;
    float *back = descent->back + layer->back;
    const float *weights = descent->parameters + layer->at;
    const int first = chunk->first, last = chunk->last < layer->in ? chunk->last : layer->in;
    transpose_rows(weights + first * layer->wide, layer->wide, last - first, layer->out, back + first, layer->wide_in);
}

/* Update this thread's share of the transposed weights. */
static void transpose_share(const struct descent *descent, const struct team *team, int member)
{
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, CHUNK, c);
        transpose_chunk(descent, &chunk);
    }
}

static void load_descent(const struct descent *descent, const struct vectors *given)
{
    const struct plan *plan = descent->plan;
    const struct team alone = {.size = 1};
    pack(plan, given->parameters, descent->parameters);
    pack(plan, given->momentum, descent->momentum);
    pack(plan, given->variance, descent->variance);
    if (descent->targets) pack(plan, given->targets, descent->targets);
    transpose_share(descent, &alone, 0);
}

static void save_descent(const struct descent *descent, const struct vectors *onto)
{
    const struct plan *plan = descent->plan;
    unpack(plan, descent->parameters, onto->parameters);
    if (onto->momentum) unpack(plan, descent->momentum, onto->momentum);
    if (onto->variance) unpack(plan, descent->variance, onto->variance);
    if (onto->targets && descent->targets) unpack(plan, descent->targets, onto->targets);
}

/* Sum the shards and take one step of Adam; return the gradient norm. Threads share the chunks, and must pass a barrier
 * before they use the parameters. Gradients are clipped to `max_norm` unless it is negative; targets move by `tau`. */
static float take_step(
    const struct descent *descent, struct team *team, int member, int shards, const struct adam *adam, float max_norm,
    float rate, float deviation, float tau
)
{
    team_barrier(team, member);
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, CHUNK, c);
        descent->norms[c] = sum_shards(descent, &chunk, shards);
    }
    team_barrier(team, member);
    double squares = 0;
    for (int c = 0; c < descent->chunks; c++) squares += descent->norms[c];
    const float norm = (float)sqrt(squares), limit = max_norm / (norm + 1e-6f);
    const float factor = max_norm >= 0 && !(limit > 1) ? limit : 1; /* propagates NaN */
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, CHUNK, c);
        adam_step(descent, &chunk, adam, factor, rate, deviation);
        transpose_chunk(descent, &chunk);
        if (tau != 0) move_targets(descent, &chunk, tau);
    }
    return norm;
}

#endif
