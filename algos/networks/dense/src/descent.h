/* Gradients of parts of a minibatch that become one step of Adam.
 *
 * A minibatch is cut into parts that depend on its size alone. Each has a gradient of its own, summed in the order of
 * its rows, and theirs are summed in order: so nothing depends on which thread computed what. */

#ifndef PADDOCK_DESCENT_H
#define PADDOCK_DESCENT_H

#include <math.h>

#include "layers.h"

/* All in the plan's own order. */
struct descent {
    const struct plan *plan;
    float *parameters, *momentum, *variance;
    float *targets; /* parameters that follow slowly, or NULL */
    float *back;    /* transposed weights */
    float *gradient[MOST_PARTS];
    uint8_t *touched[MOST_PARTS]; /* rows of weights whose gradient is not 0, of layers that take sparse rows; or NULL */
    float *norms; /* of each chunk: the sum of its squares */
    int chunks;
};

/* Rows of weights [first, last) of a layer, of which its bias is the last; chunk 0 are the leading numbers. */
struct chunk {
    const struct layer *layer; /* NULL of chunk 0 */
    int first, last;
    size_t at, count; /* floats */
    int wide;
};

static int64_t part_of(int64_t rows, int parts, int part) { return rows * part / parts; }

static int count_parts(int64_t rows)
{
    int64_t parts = rows / BLOCK;
    return parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : (int)parts;
}

static int count_chunks(const struct plan *plan)
{
    int chunks = 1;
    for (int k = 0; k < plan->begin[plan->chains]; k++) chunks += (plan->layers[k].in + CHUNK) / CHUNK;
    return chunks;
}

static struct chunk chunk_of(const struct plan *plan, int number)
{
    const int leading = whole(plan->leading);
    if (number == 0) return (struct chunk){.count = leading, .wide = leading};
    const struct layer *layer = plan->layers;
    for (number--; number >= (layer->in + CHUNK) / CHUNK; layer++) number -= (layer->in + CHUNK) / CHUNK;
    const int first = number * CHUNK, last = first + CHUNK < layer->in + 1 ? first + CHUNK : layer->in + 1;
    return (struct chunk){
        layer, first, last, layer->at + (size_t)first * layer->wide, (size_t)(last - first) * layer->wide, layer->wide,
    };
}

/* Make room for the gradients of so many parts. */
static int open_parts(struct descent *descent, int parts)
{
    const struct plan *plan = descent->plan;
    const int sparse = plan->layers[0].sparse;
    for (int p = 0; p < parts; p++) {
        float **gradient = &descent->gradient[p];
        uint8_t **touched = &descent->touched[p];
        if (!*gradient && !(*gradient = zeros(plan->parameters * sizeof(float)))) return -1;
        if (sparse && !*touched && !(*touched = zeros(plan->layers[0].in))) return -1;
    }
    return 0;
}

/* Set a part's gradient to 0: of layers that take sparse rows, what is not. */
static void clear_part(const struct descent *descent, int part)
{
    const struct plan *plan = descent->plan;
    float *gradient = descent->gradient[part];
    uint8_t *touched = descent->touched[part];
    memset(gradient, 0, whole(plan->leading) * sizeof *gradient);
    for (int k = 0; k < plan->begin[plan->chains]; k++) {
        const struct layer *layer = &plan->layers[k];
        const size_t wide = layer->wide, bytes = wide * sizeof *gradient;
        float *own = gradient + layer->at;
        for (int i = 0; layer->sparse && i < layer->in; i++)
            if (touched[i]) memset(own + i * wide, 0, bytes);
        if (layer->sparse) memset(own + layer->in * wide, 0, bytes);
        else memset(own, 0, (layer->in + 1) * bytes);
    }
    if (touched) memset(touched, 0, plan->layers[0].in);
}

static int open_descent(struct descent *descent, const struct plan *plan, int targets)
{
    const size_t bytes = plan->parameters * sizeof(float);
    const int chunks = count_chunks(plan);
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
    for (int p = 0; p < MOST_PARTS; p++) free(descent->gradient[p]), free(descent->touched[p]);
    free(descent->parameters);
    free(descent->momentum);
    free(descent->variance);
    free(descent->targets);
    free(descent->back);
    free(descent->norms);
}

/* Whether any part's gradient by this row of weights may be other than 0; the sum is the first part's then. */
static int is_touched(const struct descent *descent, const struct chunk *chunk, int row, int parts)
{
    if (!chunk->layer || !chunk->layer->sparse || row == chunk->layer->in) return 1;
    int any = 0;
    for (int p = 0; p < parts; p++) any |= __atomic_load_n(&descent->touched[p][row], __ATOMIC_RELAXED);
    if (any) __atomic_store_n(&descent->touched[0][row], 1, __ATOMIC_RELAXED);
    return any;
}

/* Sum the parts' gradients, and the squares: by columns modulo 16, row by row, so that no width changes their order.
 * Sums that begin with 0 are never -0, and zeros change nothing in them. */
static float add_up(const struct descent *descent, const struct chunk *chunk, int parts)
{
    float *const *gradient = descent->gradient;
    vf squares[16 / LANES];
    for (int v = 0; v < 16 / LANES; v++) squares[v] = splat(0);
    int row = chunk->first;
    for (size_t from = 0; from < chunk->count; from += chunk->wide, row++) {
        if (!is_touched(descent, chunk, row, parts)) continue;
        for (int j = 0; j < chunk->wide; j += LANES) {
            const size_t i = chunk->at + from + j;
            vf sum = *(const vf *)(gradient[0] + i);
            for (int p = 1; p < parts; p++) sum += *(const vf *)(gradient[p] + i);
            *(vf *)(gradient[0] + i) = sum;
            squares[j / LANES % (16 / LANES)] += sum * sum;
        }
    }
    float total = 0;
    for (int k = 0; k < 16; k++) total += squares[k / LANES][k % LANES];
    return total;
}

/* One step of Adam (Kingma & Ba 2015, arXiv:1412.6980). */
static void descend(
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

/* Move targets towards the parameters by a share; all the way is a copy. */
static void approach(const struct descent *descent, const struct chunk *chunk, float tau)
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

/* Write rows of weights into the transposed copy. */
static void turn(const struct descent *descent, const struct chunk *chunk)
{
    const struct layer *layer = chunk->layer;
    if (!layer || !layer->turned) return;
    float *back = descent->back + layer->back;
    const float *weights = descent->parameters + layer->at;
    for (int i = chunk->first; i < chunk->last && i < layer->in; i += LANES)
        for (int j = 0; j < layer->out; j += LANES) {
            vf block[LANES];
            for (int k = 0; k < LANES; k++)
                block[k] = i + k < layer->in ? *(const vf *)(weights + (size_t)(i + k) * layer->wide + j) : splat(0);
            transpose(block);
            for (int k = 0; k < LANES && j + k < layer->out; k++)
                *(vf *)(back + (size_t)(j + k) * layer->wide_in + i) = block[k];
        }
}

/* Write this member's share of the transposed copies. */
static void turn_share(const struct descent *descent, const struct team *team, int member)
{
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, c);
        turn(descent, &chunk);
    }
}

static void load_descent(const struct descent *descent, const struct vectors *given)
{
    const struct plan *plan = descent->plan;
    const struct team alone = {.size = 1};
    take_in(plan, given->parameters, descent->parameters);
    take_in(plan, given->momentum, descent->momentum);
    take_in(plan, given->variance, descent->variance);
    if (descent->targets) take_in(plan, given->targets, descent->targets);
    turn_share(descent, &alone, 0);
}

static void save_descent(const struct descent *descent, const struct vectors *onto)
{
    const struct plan *plan = descent->plan;
    give_back(plan, descent->parameters, onto->parameters);
    if (onto->momentum) give_back(plan, descent->momentum, onto->momentum);
    if (onto->variance) give_back(plan, descent->variance, onto->variance);
    if (onto->targets && descent->targets) give_back(plan, descent->targets, onto->targets);
}

/* Take one step of Adam, once every part's gradient stands: each member of a team does its share, and has to meet the
 * others before it uses the parameters. Gradients are scaled down to the norm `max_norm`, unless it is negative;
 * targets move by `tau`, unless it is 0. Returns the norm. */
static float take_step(
    const struct descent *descent, struct team *team, int member, int parts, const struct adam *adam, float max_norm,
    float rate, float deviation, float tau
)
{
    meet(team, member);
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, c);
        descent->norms[c] = add_up(descent, &chunk, parts);
    }
    meet(team, member);
    double squares = 0;
    for (int c = 0; c < descent->chunks; c++) squares += descent->norms[c];
    const float norm = (float)sqrt(squares), limit = max_norm / (norm + 1e-6f);
    const float factor = max_norm >= 0 && !(limit > 1) ? limit : 1; /* a NaN goes on */
    for (int c = member; c < descent->chunks; c += team->size) {
        const struct chunk chunk = chunk_of(descent->plan, c);
        descend(descent, &chunk, adam, factor, rate, deviation);
        turn(descent, &chunk);
        if (tau != 0) approach(descent, &chunk, tau);
    }
    return norm;
}

#endif
