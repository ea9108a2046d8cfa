/* Action probabilities of discrete policies; one SIMD lane per row. */

#ifndef PADDOCK_CATEGORICAL_H
#define PADDOCK_CATEGORICAL_H

#include "../network.h"
#include "squashed.h"

struct categorical { /* one allocation, which starts at `prob` */
    int choices;
    float *prob, *log; /* [choices, REPLAY_BLOCK]: probabilities and their logarithms, 0 where the probability is */
    float *cost;        /* [choices, REPLAY_BLOCK]: alpha log p - Q */
    float *max_entropy;        /* [REPLAY_BLOCK]: log of the number of legal actions */
};

static int open_categorical(struct categorical *categorical, int choices)
{
    const size_t each = (size_t)choices * REPLAY_BLOCK;
    float *prob = zeros((3 * each + REPLAY_BLOCK) * sizeof *prob);
    if (!prob) return *categorical = (struct categorical){0}, -1;
    *categorical = (struct categorical){choices, prob, prob + each, prob + 2 * each, prob + 3 * each};
    return 0;
}

static void close_categorical(struct categorical *categorical) { free(categorical->prob); }

/* Return a column's LANES rows from `first` on. */
INLINE vf *lanes_of(float *columns, int choice, int first)
{
    return (vf *)(columns + (size_t)choice * REPLAY_BLOCK + first);
}

/* Compute probabilities from logits [count, wide] and masks `legal` [count, choices] with row stride `row`, or NULL. */
static void softmax_choices(
    struct categorical *categorical, const float *out, int wide, const float *legal, int row, int count
)
{
    const int choices = categorical->choices;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf top = splat(0), sum = splat(0), many = splat(0);
        for (int j = 0; j < choices; j++) {
            vf x = column(out + (size_t)first * wide + j, wide, lanes);
            if (legal) {
                const vi may = column(legal + (size_t)first * row + j, row, lanes) != splat(0);
                x = pick(may, x, splat(LOWEST)), many += keep(may, splat(1));
            }
            *lanes_of(categorical->log, j, first) = x;
            top = j ? pick(x > top, x, top) : x;
        }
        for (int j = 0; j < choices; j++) {
            vf *log = lanes_of(categorical->log, j, first), *prob = lanes_of(categorical->prob, j, first);
            *log -= top, *prob = fast_exp(*log);
            sum = j ? sum + *prob : *prob;
        }
        const vf normal = fast_log(sum);
        for (int j = 0; j < choices; j++) {
            vf *log = lanes_of(categorical->log, j, first), *prob = lanes_of(categorical->prob, j, first);
            *prob /= sum, *log = keep(*prob > splat(0), *log - normal);
        }
        *lanes_of(categorical->max_entropy, 0, first) = fast_log(legal ? most(many, splat(1)) : splat((float)choices));
    }
}

#endif
