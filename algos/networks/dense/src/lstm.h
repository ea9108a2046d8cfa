/* LSTM over sequences, forward and backward (Hochreiter and Schmidhuber 1997).
 *
 * Each step applies a dense layer from [inputs, hidden state] to four gates. Gates are padded with zeros to
 * GATE_MULTIPLE floats at every vector width, so that sums are identical. The number of shards depends on the number of
 * rows only, and their gradients are summed in order. */

#ifndef PADDOCK_LSTM_H
#define PADDOCK_LSTM_H

#include "chains.h"
#include "descent.h"

#define GATE_MULTIPLE 16
#define GATES 4           /* in torch's order: input, forget, cell (tanh), output */
#define GRADIENT_ROWS 128 /* rows per weight-gradient product */
#define SHARD_ROWS 32     /* minimum size of a shard */

struct gates {
    int in, width, wide; /* inputs, outputs, padded outputs */
    int fan_in, back;    /* inputs and hidden state, and the same padded */
    float *weights;      /* [fan_in + 1, GATES * wide], the last row is the bias */
    float *transposed;   /* [GATES * wide, back]; NULL: forward only */
};

/* Activations of a shard at each step; of one step only if no backward pass follows. */
struct trace {
    float *gates, *joined; /* [steps, rows, ...] */
    float *tanhs;          /* [steps, rows, wide], tanh of the cell state */
    float *cells;          /* [steps + 1, rows, wide], cell states */
};

INLINE int round_up_gate(int n) { return (n + GATE_MULTIPLE - 1) / GATE_MULTIPLE * GATE_MULTIPLE; }

static size_t lstm_tape(const struct lstm *lstm)
{
    const size_t wide = round_up_gate(lstm->width), back = round_up_gate(lstm->in + lstm->width);
    const size_t steps = lstm->kept ? lstm->steps : 1;
    return (size_t)lstm->rows * (steps * (GATES * wide + back + wide) + (steps + 1) * wide);
}

static struct trace trace_of(const struct lstm *lstm, const struct gates *gates, int64_t first, int64_t rows)
{
    const size_t steps = lstm->kept ? lstm->steps : 1, each = steps * rows;
    struct lstm one = *lstm;
    one.rows = first;
    struct trace trace = {.gates = lstm->tape + lstm_tape(&one)};
    trace.joined = trace.gates + each * GATES * gates->wide;
    trace.tanhs = trace.joined + each * gates->back;
    trace.cells = trace.tanhs + each * gates->wide;
    return trace;
}

static void close_gates(struct gates *gates) { free(gates->weights), free(gates->transposed); }

static int open_gates(struct gates *gates, const struct lstm *lstm, int transposed)
{
    const int in = lstm->in, width = lstm->width, wide = round_up_gate(width), fan_in = in + width;
    *gates = (struct gates){in, width, wide, fan_in, round_up_gate(fan_in), NULL, NULL};
    const size_t row = (size_t)GATES * wide;
    gates->weights = zeros((fan_in + 1) * row * sizeof(float));
    if (transposed) gates->transposed = zeros(row * gates->back * sizeof(float));
    if (!gates->weights || (transposed && !gates->transposed)) return close_gates(gates), -1;
    for (int gate = 0; gate < GATES; gate++)
        for (int j = 0; j < width; j++) {
            const int from = gate * width + j, to = gate * wide + j;
            for (int i = 0; i < fan_in; i++) {
                const size_t j_in = (size_t)from * in + i, j_state = (size_t)from * width + i - in;
                const float weight = i < in ? lstm->in_weight[j_in] : lstm->state_weight[j_state];
                gates->weights[i * row + to] = weight;
                if (transposed) gates->transposed[(size_t)to * gates->back + i] = weight;
            }
            gates->weights[fan_in * row + to] = lstm->in_bias[from] + lstm->state_bias[from];
        }
    return 0;
}

INLINE vf logistic(vf x) { return 1.0f / (1.0f + fast_exp(-x)); }

/* Activate the gates of a row, and compute its cell state and output. */
INLINE void gates_forward(float *gates, int wide, const float *before, float *after, float *tanh_row, float *output)
{
    for (int j = 0; j < wide; j += LANES) {
        const vf in = logistic(*(vf_row *)(gates + j)), forget = logistic(*(vf_row *)(gates + wide + j));
        const vf new = fast_tanh(*(vf_row *)(gates + 2 * wide + j));
        const vf out = logistic(*(vf_row *)(gates + 3 * wide + j));
        const vf cell = forget * *(const vf_row *)(before + j) + in * new, tanh_cell = fast_tanh(cell);
        *(vf_row *)(gates + j) = in, *(vf_row *)(gates + wide + j) = forget;
        *(vf_row *)(gates + 2 * wide + j) = new, *(vf_row *)(gates + 3 * wide + j) = out;
        *(vf_row *)(after + j) = cell, *(vf_row *)(tanh_row + j) = tanh_cell, *(vf_row *)(output + j) = out * tanh_cell;
    }
}

/* Forward pass of rows first .. first + rows - 1; `output` is a buffer for one row. */
static void lstm_forward(const struct lstm *lstm, const struct gates *gates, int64_t first, int64_t rows, float *output)
{
    const int in = gates->in, width = gates->width, wide = gates->wide;
    const size_t row = (size_t)GATES * wide;
    const struct trace trace = trace_of(lstm, gates, first, rows);
    for (int64_t t = 0; t < lstm->steps; t++) {
        const size_t slot = lstm->kept ? t : 0, before = lstm->kept ? t : t & 1, after = lstm->kept ? t + 1 : ~t & 1;
        float *joined = trace.joined + slot * rows * gates->back, *sums = trace.gates + slot * rows * row;
        float *cells = trace.cells + before * rows * wide, *next = trace.cells + after * rows * wide;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *memory = t ? lstm->memory + (at - lstm->rows) * 2 * width : lstm->state + at * 2 * width;
            float *hidden = joined + r * gates->back + in, *cell = cells + r * wide;
            memcpy(joined + r * gates->back, lstm->inputs + at * in, in * sizeof *joined);
            memcpy(hidden, memory, width * sizeof *hidden);
            if (!t) memcpy(memset(cell, 0, wide * sizeof *cell), memory + width, width * sizeof *cell);
            if (lstm->start[at]) memset(hidden, 0, width * sizeof *hidden), memset(cell, 0, wide * sizeof *cell);
        }
        product(
            joined, gates->back, 1, gates->fan_in, gates->weights, row, gates->weights + gates->fan_in * row, 0, sums,
            row, (int)rows, (int)row
        );
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            float *memory = lstm->memory + at * 2 * width;
            float *tanh_row = trace.tanhs + (slot * rows + r) * wide;
            gates_forward(sums + r * row, wide, cells + r * wide, next + r * wide, tanh_row, output);
            if (lstm->acts && !lstm->acts[at]) {
                memcpy(next + r * wide, cells + r * wide, wide * sizeof *next);
                memcpy(output, joined + r * gates->back + in, width * sizeof *output);
            }
            memcpy(memory, output, width * sizeof *memory);
            memcpy(memory + width, next + r * wide, width * sizeof *memory);
        }
    }
}

/* Buffers of a shard in the backward pass. */
struct backward {
    float *onto;          /* [fan_in + 1, GATES * wide], weight gradient */
    float *output, *cell; /* [rows, wide], gradients of the state after the step */
    float *grad_input;    /* [rows, back], gradients of the step's input */
};

static void close_backward(struct backward *backward)
{
    free(backward->onto), free(backward->output), free(backward->cell), free(backward->grad_input);
}

static int open_backward(struct backward *backward, const struct gates *gates, int64_t rows)
{
    const size_t wide = gates->wide;
    *backward = (struct backward){
        zeros((gates->fan_in + 1) * GATES * wide * sizeof(float)), zeros(rows * wide * sizeof(float)),
        zeros(rows * wide * sizeof(float)), zeros(rows * gates->back * sizeof(float)),
    };
    return backward->onto && backward->output && backward->cell && backward->grad_input ? 0 : -1;
}

/* Replace a row's gates by gradients of their pre-activations, and `cell` by that of the previous cell state. */
INLINE void gates_backward(
    float *gates, int wide, const float *before, const float *tanh_row, const float *output, float *cell
)
{
    for (int j = 0; j < wide; j += LANES) {
        const vf in = *(vf_row *)(gates + j), forget = *(vf_row *)(gates + wide + j);
        const vf new = *(vf_row *)(gates + 2 * wide + j), out = *(vf_row *)(gates + 3 * wide + j);
        const vf tanh_cell = *(const vf_row *)(tanh_row + j), grad = *(const vf_row *)(output + j);
        const vf grad_cell = *(vf_row *)(cell + j) + grad * (out * (1.0f - tanh_cell * tanh_cell));
        *(vf_row *)(gates + j) = grad_cell * (new * (in * (1.0f - in)));
        *(vf_row *)(gates + wide + j) = grad_cell * (*(const vf_row *)(before + j) * (forget * (1.0f - forget)));
        *(vf_row *)(gates + 2 * wide + j) = grad_cell * (in * (1.0f - new * new));
        *(vf_row *)(gates + 3 * wide + j) = grad * (tanh_cell * (out * (1.0f - out)));
        *(vf_row *)(cell + j) = grad_cell * forget;
    }
}

static void lstm_backward(
    const struct lstm *lstm, const struct gates *gates, const struct lstm_gradient *gradient, int64_t first,
    int64_t rows, const struct backward *backward
)
{
    const int in = gates->in, width = gates->width, wide = gates->wide;
    const size_t row = (size_t)GATES * wide;
    const struct trace trace = trace_of(lstm, gates, first, rows);
    for (int64_t t = lstm->steps - 1; t >= 0; t--) {
        float *grad = trace.gates + t * rows * row;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *more = gradient->memory + at * 2 * width;
            float *output = backward->output + r * wide, *cell = backward->cell + r * wide;
            for (int j = 0; j < width; j++) output[j] += more[j], cell[j] += more[width + j];
            if (lstm->acts && !lstm->acts[at]) memset(grad + r * row, 0, row * sizeof *grad);
            else
                gates_backward(
                    grad + r * row, wide, trace.cells + (t * rows + r) * wide, trace.tanhs + (t * rows + r) * wide,
                    output, cell
                );
        }
        product(
            grad, row, 1, (int)row, gates->transposed, gates->back, NULL, 0, backward->grad_input, gates->back,
            (int)rows, gates->back
        );
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = t * lstm->rows + first + r;
            const float *grad_input = backward->grad_input + r * gates->back;
            float *output = backward->output + r * wide;
            const int acts = !lstm->acts || lstm->acts[at];
            if (gradient->inputs) memcpy(gradient->inputs + at * in, grad_input, in * sizeof *grad_input);
            if (lstm->start[at]) {
                memset(output, 0, wide * sizeof *output);
                memset(backward->cell + r * wide, 0, wide * sizeof *output);
            } else if (acts) memcpy(output, grad_input + in, width * sizeof *output);
        }
    }
    for (int64_t r = 0; gradient->state && r < rows; r++) {
        float *onto = gradient->state + (first + r) * 2 * width;
        memcpy(onto, backward->output + r * wide, width * sizeof *onto);
        memcpy(onto + width, backward->cell + r * wide, width * sizeof *onto);
    }
    const struct layer layer = {.in = gates->fan_in, .out = (int)row, .wide = (int)row};
    const int64_t all = lstm->steps * rows;
    for (int64_t k = 0; k < all; k += GRADIENT_ROWS)
        weights_gradient(
            NULL, &layer, trace.joined + k * gates->back, gates->back, trace.gates + k * row,
            (int)(all - k < GRADIENT_ROWS ? all - k : GRADIENT_ROWS), backward->onto
        );
}

struct lstm_call { /* arguments of one call */
    const struct lstm *lstm;
    const struct lstm_gradient *gradient; /* NULL: forward pass */
    struct gates gates;
    struct backward backwards[MAX_SHARDS];
    struct team team;
    int failed;
};

static void run_shards(void *job, int member)
{
    struct lstm_call *call = job;
    const int64_t rows = call->lstm->rows;
    const int shards = count_shards(rows, SHARD_ROWS);
    float *output = call->gradient ? NULL : zeros(call->gates.wide * sizeof *output);
    int failed = !call->gradient && !output;
    for (int p = member; p < shards && !failed; p += call->team.size) {
        const int64_t first = shard_start(rows, shards, p), count = shard_start(rows, shards, p + 1) - first;
        if (!call->gradient) lstm_forward(call->lstm, &call->gates, first, count, output);
        else if (!(failed = open_backward(&call->backwards[p], &call->gates, count)))
            lstm_backward(call->lstm, &call->gates, call->gradient, first, count, &call->backwards[p]);
    }
    if (failed) __atomic_store_n(&call->failed, 1, __ATOMIC_RELAXED);
    free(output);
}

/* Sum the shards' gradients, and write them in torch's order. */
static void write_gradient(const struct lstm_call *call, int shards)
{
    const struct gates *gates = &call->gates;
    const struct lstm_gradient *gradient = call->gradient;
    const size_t row = (size_t)GATES * gates->wide, all = (gates->fan_in + 1) * row;
    float *sum = call->backwards[0].onto;
    for (int p = 1; p < shards; p++)
        for (size_t i = 0; i < all; i += LANES) *(vf_row *)(sum + i) += *(const vf_row *)(call->backwards[p].onto + i);
    for (int gate = 0; gate < GATES; gate++)
        for (int j = 0; j < gates->width; j++) {
            const int from = gate * gates->wide + j, to = gate * gates->width + j;
            for (int i = 0; i < gates->in; i++) gradient->in_weight[(size_t)to * gates->in + i] = sum[i * row + from];
            for (int i = 0; i < gates->width; i++)
                gradient->state_weight[(size_t)to * gates->width + i] = sum[(gates->in + i) * row + from];
            gradient->bias[to] = sum[gates->fan_in * row + from];
        }
}

static int lstm_run(const struct lstm *lstm, const struct lstm_gradient *gradient)
{
    struct lstm_call call = {.lstm = lstm, .gradient = gradient};
    const int shards = count_shards(lstm->rows, SHARD_ROWS);
    if (open_gates(&call.gates, lstm, gradient != NULL)) return -1;
    run_team(&call.team, lstm->threads < shards ? lstm->threads : shards, run_shards, &call);
    if (gradient && !call.failed) write_gradient(&call, shards);
    for (int p = 0; p < shards; p++) close_backward(&call.backwards[p]);
    close_gates(&call.gates);
    return call.failed ? -1 : 0;
}

#endif
