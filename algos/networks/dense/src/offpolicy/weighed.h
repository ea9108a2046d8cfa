/* Choices of some rows that are weighed by their probabilities: a lane for each row. */

#ifndef PADDOCK_WEIGHED_H
#define PADDOCK_WEIGHED_H

#include "../network.h"
#include "squashed.h"

struct weighed { /* in one piece from `share` on */
    int choices;
    float *share, *log; /* [choices, TOGETHER]: probabilities, and their logarithms, 0 where the probability is */
    float *pull;        /* [choices, TOGETHER]: what each is worth less */
    float *most;        /* [TOGETHER]: the most that the entropy can be */
};

static int open_weighed(struct weighed *weighed, int choices)
{
    const size_t each = (size_t)choices * TOGETHER;
    float *share = zeros((3 * each + TOGETHER) * sizeof *share);
    if (!share) return *weighed = (struct weighed){0}, -1;
    *weighed = (struct weighed){choices, share, share + each, share + 2 * each, share + 3 * each};
    return 0;
}

static void close_weighed(struct weighed *weighed) { free(weighed->share); }

/* Of LANES rows from `first` on. */
INLINE vf *lanes_of(float *columns, int choice, int first)
{
    return (vf *)(columns + (size_t)choice * TOGETHER + first);
}

/* Weigh by outputs [count, wide], where `legal` [count, choices] with rows `row` apart says which may be; NULL: all. */
static void weigh(struct weighed *weighed, const float *out, int wide, const float *legal, int row, int count)
{
    const int choices = weighed->choices;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf top = splat(0), sum = splat(0), many = splat(0);
        for (int j = 0; j < choices; j++) {
            vf x = column(out + (size_t)first * wide + j, wide, lanes);
            if (legal) {
                const vi may = column(legal + (size_t)first * row + j, row, lanes) != splat(0);
                x = pick(may, x, splat(LOWEST)), many += keep(may, splat(1));
            }
            *lanes_of(weighed->log, j, first) = x;
            top = j ? pick(x > top, x, top) : x;
        }
        for (int j = 0; j < choices; j++) {
            vf *log = lanes_of(weighed->log, j, first), *share = lanes_of(weighed->share, j, first);
            *log -= top, *share = quick_exp(*log);
            sum = j ? sum + *share : *share;
        }
        const vf normal = quick_log(sum);
        for (int j = 0; j < choices; j++) {
            vf *log = lanes_of(weighed->log, j, first), *share = lanes_of(weighed->share, j, first);
            *share /= sum, *log = keep(*share > splat(0), *log - normal);
        }
        *lanes_of(weighed->most, 0, first) = quick_log(legal ? most(many, splat(1)) : splat((float)choices));
    }
}

#endif
