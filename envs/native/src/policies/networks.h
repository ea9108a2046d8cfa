/* What Python calls between steps: small networks, each with parameters of its own or one for all, and functions. */

#ifndef PADDOCK_NETWORKS_H
#define PADDOCK_NETWORKS_H

#include <stdint.h>

#include "simd/sparse.h"

#define SPARE_FLOATS 128 /* what whole vectors may read or write behind an array's end */

/* S networks with P parameters each, laid out as in `MLP`; envs/native/networks.py has the same fields. */
struct networks {
    const float *parameters; /* [S, P], and SPARE_FLOATS more */
    const float *input;      /* [S, sizes[0]] */
    float *output;           /* [S, sizes[layers]] */
    float *scratch;          /* two layers: [2, the widest + SPARE_FLOATS] */
    const int32_t *sizes;    /* [layers + 1] widths from input to output */
    int64_t slots, num_parameters;
    int32_t layers, relu, bounded; /* relu: or else tanh between layers; bounded: tanh of the outputs */
};

typedef void run_part(const struct networks *networks);

#define WHOLE 16         /* floats of the widest vector, in multiples of which the rows of shared weights lie */
#define FORWARD_ROWS 32  /* taken through all layers at a time */

/* One network on B rows; envs/native/forward.py has the same fields. */
struct forward {
    const float *weights; /* of each layer [in, whole], then its bias [whole]: its width rounded up to WHOLE */
    const float *input;   /* [B, sizes[0]] */
    float *output;        /* [B, sizes[layers]] */
    float *scratch;       /* [2, FORWARD_ROWS, the widest layer rounded up to WHOLE] */
    const int32_t *sizes; /* [layers + 1] widths from input to output */
    int64_t rows;
    int32_t layers, relu; /* relu: or else tanh between layers */
    const struct sparse *sparse; /* the input, where almost all of it is 0; else NULL */
};

typedef void forward_part(const struct forward *forward);

enum { FUNCTION_TANH, FUNCTION_EXP, FUNCTION_LOG };

/* y[i] of x[i]; they may be the same array. */
typedef void apply_part(int function, const float *x, float *y, int64_t count);

#endif
