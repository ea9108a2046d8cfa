/* Small networks, each with parameters of its own: one forward pass, for environments that Python steps. */

#ifndef PADDOCK_NETWORKS_H
#define PADDOCK_NETWORKS_H

#include <stdint.h>

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

#endif
