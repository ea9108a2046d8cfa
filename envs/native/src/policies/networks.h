/* Networks and functions that Python calls between steps. */

#pragma once

#include <stdint.h>

#include "simd/sparse.h"

#define SPARE_FLOATS 128 /* padding of arrays, as whole vectors are read and written */

/* S networks with P parameters each, laid out as in `MLP`; envs/native/networks.py has the same fields. */
struct networks {
    const float *parameters; /* [S, P], padded by SPARE_FLOATS */
    const float *input;      /* [S, sizes[0]] */
    float *output;           /* [S, sizes[layers]] */
    float *scratch;          /* [2, widest layer + SPARE_FLOATS] */
    const int32_t *sizes;    /* [layers + 1] widths from input to output */
    int64_t slots, num_parameters;
    int32_t layers, relu, bounded; /* relu: else tanh between layers; bounded: tanh of the outputs */
};

typedef void run_fn(const struct networks *networks);

#define WHOLE 16         /* floats in the widest vector; rows of shared weights are padded to multiples of it */
#define FORWARD_ROWS 32  /* rows passed through all layers at a time */

/* One network on B rows; envs/native/forward.py has the same fields. */
struct forward {
    const float *weights; /* of each layer [in, width], then its bias [width], with width padded to WHOLE */
    const float *input;   /* [B, sizes[0]] */
    float *output;        /* [B, sizes[layers]] */
    float *scratch;       /* [2, FORWARD_ROWS, widest layer, padded to WHOLE] */
    const int32_t *sizes; /* [layers + 1] widths from input to output */
    int64_t rows;
    int32_t layers, relu; /* relu: else tanh between layers */
    const struct sparse *sparse; /* sparse input, else NULL */
};

typedef void forward_fn(const struct forward *forward);

enum { FUNCTION_TANH, FUNCTION_EXP, FUNCTION_LOG };

/* Apply a function to each element; x and y may be the same array. */
typedef void apply_fn(int function, const float *x, float *y, int64_t count);
