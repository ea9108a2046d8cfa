/* An LSTM over sequences of rows, and the gradient back through it (Hochreiter and Schmidhuber 1997).
 *
 * It is a dense layer of [inputs, output before] to four gates, once a step. Each gate lies in a multiple of WHOLE_GATE
 * floats at every width of lanes, so that sums have the same terms in all; those beyond it are zeros and stay so. Rows
 * are cut into parts by their number alone, and on the way back the parts' sums are added in their order. */

#ifndef PADDOCK_LSTM_H
#define PADDOCK_LSTM_H

#include "chains.h"
#include "descent.h"

#define WHOLE_GATE 16
#define GATES 4     /* in torch's order: let in, forget, new (a tanh, where the others are logistic), let out */
#define AT_ONCE 128 /* rows whose gradients by the weights are summed together */

struct gates {
    int in, width, wide; /* inputs, outputs, outputs rounded up */
    int taken, back;     /* inputs and outputs before, and the same rounded up */
    float *weights;      /* [taken + 1, GATES * wide], of which the last is the bias */
    float *turned;       /* [GATES * wide, back]; NULL: there is no way back */
};

/* What a part of the rows leaves behind at each step, or at one if nobody goes back. */
struct trace {
    float *gates, *taken; /* [steps, rows, ...] */
    float *tangents;      /* [steps, rows, wide], of the cell's state */
    float *cells;         /* [steps + 1, rows, wide], the cell's state before each, and after the last */
};

INLINE int whole_gate(int n) { return (n + WHOLE_GATE - 1) / WHOLE_GATE * WHOLE_GATE; }

static size_t lstm_tape(const struct lstm *lstm)
{
    const size_t wide = whole_gate(lstm->width), back = whole_gate(lstm->in + lstm->width);
    const size_t steps = lstm->kept ? lstm->steps : 1;
    return (size_t)lstm->rows * (steps * (GATES * wide + back + wide) + (steps + 1) * wide);
}

static struct trace trace_of(const struct lstm *lstm, const struct gates *gates, int64_t first, int64_t rows)
{
    const size_t steps = lstm->kept ? lstm->steps : 1, each = steps * rows;
    struct lstm one = *lstm;
    one.rows = first;
    struct trace trace = {.gates = lstm->tape + lstm_tape(&one)};
    trace.taken = trace.gates + each * GATES * gates->wide;
    trace.tangents = trace.taken + each * gates->back;
    trace.cells = trace.tangents + each * gates->wide;
    return trace;
}

static void close_gates(struct gates *gates) { free(gates->weights), free(gates->turned); }

static int open_gates(struct gates *gates, const struct lstm *lstm, int turned)
{
    const int in = lstm->in, width = lstm->width, wide = whole_gate(width), taken = in + width;
    *gates = (struct gates){in, width, wide, taken, whole_gate(taken), NULL, NULL};
    const size_t row = (size_t)GATES * wide;
    gates->weights = zeros((taken + 1) * row * sizeof(float));
    if (turned) gates->turned = zeros(row * gates->back * sizeof(float));
    if (!gates->weights || (turned && !gates->turned)) return close_gates(gates), -1;
    for (int gate = 0; gate < GATES; gate++)
        for (int j = 0; j < width; j++) {
            const int from = gate * width + j, to = gate * wide + j;
            for (int i = 0; i < taken; i++) {
                const size_t j_in = (size_t)from * in + i, j_state = (size_t)from * width + i - in;
                const float weight = i < in ? lstm->in_weight[j_in] : lstm->state_weight[j_state];
                gates->weights[i * row + to] = weight;
                if (turned) gates->turned[(size_t)to * gates->back + i] = weight;
            }
            gates->weights[taken * row + to] = lstm->in_bias[from] + lstm->state_bias[from];
        }
    return 0;
}

INLINE vf logistic(vf x) { return 1.0f / (1.0f + quick_exp(-x)); }

/* Turn sums into gates; returns a row's output and the state of its cell, of which before it was `cell`. */
INLINE void pass_gates(float *gates, int wide, const float *before, float *after, float *tangent, float *output)
{
    for (int j = 0; j < wide; j += LANES) {
        const vf in = logistic(*(vf_row *)(gates + j)), forget = logistic(*(vf_row *)(gates + wide + j));
        const vf new = quick_tangent(*(vf_row *)(gates + 2 * wide + j));
        const vf out = logistic(*(vf_row *)(gates + 3 * wide + j));
        const vf cell = forget * *(const vf_row *)(before + j) + in * new, told = quick_tangent(cell);
        *(vf_row *)(gates + j) = in, *(vf_row *)(gates + wide + j) = forget;
        *(vf_row *)(gates + 2 * wide + j) = new, *(vf_row *)(gates + 3 * wide + j) = out;
        *(vf_row *)(after + j) = cell, *(vf_row *)(tangent + j) = told, *(vf_row *)(output + j) = out * told;
    }
}

/* Rows first .. first + rows - 1, with room for one row's output. */
static void remember(const struct lstm *lstm, const struct gates *gates, int64_t first, int64_t rows, float *output)
{
    const int in = gates->in, width = gates->width, wide = gates->wide;
    const size_t row = (size_t)GATES * wide;
    const struct trace trace = trace_of(lstm, gates, first, rows);
    for (int64_t t = 0; t < lstm->steps; t++) {
        const size_t slot = lstm->kept ? t : 0, before = lstm->kept ? t : t & 1, after = lstm->kept ? t + 1 : ~t & 1;
        float *taken = trace.taken + slot * rows * gates->back, *sums = trace.gates + slot * rows * row;
        float *cells = trace.cells + before * rows * wide, *next = trace.cells + after * rows * wide;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *memory = t ? lstm->memory + (at - lstm->rows) * 2 * width : lstm->state + at * 2 * width;
            float *told = taken + r * gates->back + in, *cell = cells + r * wide;
            memcpy(taken + r * gates->back, lstm->inputs + at * in, in * sizeof *taken);
            memcpy(told, memory, width * sizeof *told);
            if (!t) memcpy(memset(cell, 0, wide * sizeof *cell), memory + width, width * sizeof *cell);
            if (lstm->start[at]) memset(told, 0, width * sizeof *told), memset(cell, 0, wide * sizeof *cell);
        }
        product(
            taken, gates->back, 1, gates->taken, gates->weights, row, gates->weights + gates->taken * row, sums, row,
            (int)rows, (int)row
        );
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            float *told = lstm->memory + at * 2 * width;
            float *tangent = trace.tangents + (slot * rows + r) * wide;
            pass_gates(sums + r * row, wide, cells + r * wide, next + r * wide, tangent, output);
            if (lstm->acts && !lstm->acts[at]) {
                memcpy(next + r * wide, cells + r * wide, wide * sizeof *next);
                memcpy(output, taken + r * gates->back + in, width * sizeof *output);
            }
            memcpy(told, output, width * sizeof *told);
            memcpy(told + width, next + r * wide, width * sizeof *told);
        }
    }
}

/* What a part needs on its way back. */
struct way {
    float *onto;          /* [taken + 1, GATES * wide], its gradient */
    float *output, *cell; /* [rows, wide], by the memory after the step */
    float *further;       /* [rows, back], by what the step took */
};

static void close_way(struct way *way) { free(way->onto), free(way->output), free(way->cell), free(way->further); }

static int open_way(struct way *way, const struct gates *gates, int64_t rows)
{
    const size_t wide = gates->wide;
    *way = (struct way){
        zeros((gates->taken + 1) * GATES * wide * sizeof(float)), zeros(rows * wide * sizeof(float)),
        zeros(rows * wide * sizeof(float)), zeros(rows * gates->back * sizeof(float)),
    };
    return way->onto && way->output && way->cell && way->further ? 0 : -1;
}

/* Turn a row's gates into gradients by their sums, and `cell` into that by the state before, had none begun there. */
INLINE void return_gates(
    float *gates, int wide, const float *before, const float *tangent, const float *output, float *cell
)
{
    for (int j = 0; j < wide; j += LANES) {
        const vf in = *(vf_row *)(gates + j), forget = *(vf_row *)(gates + wide + j);
        const vf new = *(vf_row *)(gates + 2 * wide + j), out = *(vf_row *)(gates + 3 * wide + j);
        const vf told = *(const vf_row *)(tangent + j), by = *(const vf_row *)(output + j);
        const vf by_cell = *(vf_row *)(cell + j) + by * (out * (1.0f - told * told));
        *(vf_row *)(gates + j) = by_cell * (new * (in * (1.0f - in)));
        *(vf_row *)(gates + wide + j) = by_cell * (*(const vf_row *)(before + j) * (forget * (1.0f - forget)));
        *(vf_row *)(gates + 2 * wide + j) = by_cell * (in * (1.0f - new * new));
        *(vf_row *)(gates + 3 * wide + j) = by * (told * (out * (1.0f - out)));
        *(vf_row *)(cell + j) = by_cell * forget;
    }
}

static void go_back_in_time(
    const struct lstm *lstm, const struct gates *gates, const struct lstm_gradient *gradient, int64_t first,
    int64_t rows, const struct way *way
)
{
    const int in = gates->in, width = gates->width, wide = gates->wide;
    const size_t row = (size_t)GATES * wide;
    const struct trace trace = trace_of(lstm, gates, first, rows);
    for (int64_t t = lstm->steps - 1; t >= 0; t--) {
        float *by = trace.gates + t * rows * row;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *more = gradient->memory + at * 2 * width;
            float *output = way->output + r * wide, *cell = way->cell + r * wide;
            for (int j = 0; j < width; j++) output[j] += more[j], cell[j] += more[width + j];
            if (lstm->acts && !lstm->acts[at]) memset(by + r * row, 0, row * sizeof *by);
            else
                return_gates(
                    by + r * row, wide, trace.cells + (t * rows + r) * wide, trace.tangents + (t * rows + r) * wide,
                    output, cell
                );
        }
        product(
            by, row, 1, (int)row, gates->turned, gates->back, NULL, way->further, gates->back, (int)rows, gates->back
        );
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *further = way->further + r * gates->back;
            float *output = way->output + r * wide;
            const int acts = !lstm->acts || lstm->acts[at];
            if (gradient->inputs) memcpy(gradient->inputs + at * in, further, in * sizeof *further);
            if (lstm->start[at]) {
                memset(output, 0, wide * sizeof *output);
                memset(way->cell + r * wide, 0, wide * sizeof *output);
            } else if (acts) memcpy(output, further + in, width * sizeof *output);
        }
    }
    for (int64_t r = 0; gradient->state && r < rows; r++) {
        float *onto = gradient->state + (first + r) * 2 * width;
        memcpy(onto, way->output + r * wide, width * sizeof *onto);
        memcpy(onto + width, way->cell + r * wide, width * sizeof *onto);
    }
    const struct layer layer = {.in = gates->taken, .out = (int)row, .wide = (int)row};
    const int64_t all = lstm->steps * rows;
    for (int64_t k = 0; k < all; k += AT_ONCE)
        weights_gradient(
            NULL, &layer, trace.taken + k * gates->back, gates->back, trace.gates + k * row,
            (int)(all - k < AT_ONCE ? all - k : AT_ONCE), way->onto
        );
}

struct sequences { /* one call */
    const struct lstm *lstm;
    const struct lstm_gradient *gradient; /* NULL: forward */
    struct gates gates;
    struct way ways[MOST_PARTS];
    struct team team;
    int failed;
};

static void go_through(void *job, int member)
{
    struct sequences *of = job;
    const int64_t rows = of->lstm->rows;
    const int parts = count_parts(rows);
    float *output = of->gradient ? NULL : zeros(of->gates.wide * sizeof *output);
    int failed = !of->gradient && !output;
    for (int p = member; p < parts && !failed; p += of->team.size) {
        const int64_t first = part_of(rows, parts, p), count = part_of(rows, parts, p + 1) - first;
        if (!of->gradient) remember(of->lstm, &of->gates, first, count, output);
        else if (!(failed = open_way(&of->ways[p], &of->gates, count)))
            go_back_in_time(of->lstm, &of->gates, of->gradient, first, count, &of->ways[p]);
    }
    if (failed) __atomic_store_n(&of->failed, 1, __ATOMIC_RELAXED);
    free(output);
}

/* Add up the parts' gradients, and give them in torch's order. */
static void give_gradient(const struct sequences *of, int parts)
{
    const struct gates *gates = &of->gates;
    const struct lstm_gradient *gradient = of->gradient;
    const size_t row = (size_t)GATES * gates->wide, all = (gates->taken + 1) * row;
    float *sum = of->ways[0].onto;
    for (int p = 1; p < parts; p++)
        for (size_t i = 0; i < all; i += LANES) *(vf_row *)(sum + i) += *(const vf_row *)(of->ways[p].onto + i);
    for (int gate = 0; gate < GATES; gate++)
        for (int j = 0; j < gates->width; j++) {
            const int from = gate * gates->wide + j, to = gate * gates->width + j;
            for (int i = 0; i < gates->in; i++) gradient->in_weight[(size_t)to * gates->in + i] = sum[i * row + from];
            for (int i = 0; i < gates->width; i++)
                gradient->state_weight[(size_t)to * gates->width + i] = sum[(gates->in + i) * row + from];
            gradient->bias[to] = sum[gates->taken * row + from];
        }
}

static int lstm_run(const struct lstm *lstm, const struct lstm_gradient *gradient)
{
    struct sequences of = {.lstm = lstm, .gradient = gradient};
    const int parts = count_parts(lstm->rows);
    if (open_gates(&of.gates, lstm, gradient != NULL)) return -1;
    run_team(&of.team, lstm->threads < parts ? lstm->threads : parts, go_through, &of);
    if (gradient && !of.failed) give_gradient(&of, parts);
    for (int p = 0; p < parts; p++) close_way(&of.ways[p]);
    close_gates(&of.gates);
    return of.failed ? -1 : 0;
}

#endif
