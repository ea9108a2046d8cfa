/* Extraction of features from rows of bytes. */

#include <stdlib.h>
#include <string.h>

#include "features.h"

#define READ(type)                                                                                                     \
    type x;                                                                                                            \
    memcpy(&x, at, sizeof x);                                                                                          \
    return

/* Read an integer; unsigned 64-bit values above INT64_MAX match no feature. */
static int64_t read_whole(const uint8_t *at, int type)
{
    switch (type) {
    case INT8: { READ(int8_t) x; }
    case INT16: { READ(int16_t) x; }
    case INT32: { READ(int32_t) x; }
    case UINT8: { READ(uint8_t) x; }
    case UINT16: { READ(uint16_t) x; }
    case UINT32: { READ(uint32_t) x; }
    default: { READ(int64_t) x; }
    }
}

static float read_number(const uint8_t *at, int type)
{
    switch (type) {
    case UINT64: { READ(uint64_t) (float)x; }
    case FLOAT32: { READ(float) x; }
    case FLOAT64: { READ(double) (float)x; }
    default: return (float)read_whole(at, type);
    }
}

/* Output arrays and the number of features written. */
struct written {
    uint16_t *index;
    float *value;
    int count;
};

static inline void put(const struct features *features, struct written *to, int feature, float x)
{
    if (features->mean) { /* as `Normalizer` of envs/native/networks.py */
        const float clip = features->clip;
        x = (x - features->mean[feature]) / features->std[feature];
        x = x < -clip ? -clip : x;
        x = x > clip ? clip : x;
    }
    to->index[to->count] = (uint16_t)feature;
    if (to->value) to->value[to->count] = x;
    to->count += x != 0;
}

/* Write the non-zero features of a row; return their number. */
static int expand_row(const struct features *features, const uint8_t *row, uint16_t *index, float *value)
{
    struct written to = {index, value, 0};
    const struct number *number = features->numbers;
    for (int k = 0; k < features->count; k++, number++) {
        const uint8_t *at = row + number->offset;
        if (number->kind == ONE_HOT) {
            const int64_t x = (number->type == UINT8 ? *at : read_whole(at, number->type)) - number->start;
            if (x >= 0 && x < number->size) put(features, &to, number->first + (int)x, 1);
        } else if (number->kind == SCALED)
            put(features, &to, number->first, read_number(at, number->type) / number->by);
        else
            for (int64_t x = 0; x < number->size && x < read_whole(at, number->type); x++)
                put(features, &to, number->first + (int)x, 1);
    }
    return to.count;
}

void expand_rows(
    const struct features *features, const uint8_t *rows, int64_t count, int64_t *starts, uint16_t *index, float *value
)
{
    int64_t at = 0;
    for (int64_t r = 0; r < count; r++, rows += features->row_bytes) {
        starts[r] = at;
        at += expand_row(features, rows, index + at, value ? value + at : NULL);
    }
    starts[count] = at;
}

int open_expanded(struct expanded *expanded, const struct features *features, int rows)
{
    const size_t most = (size_t)rows * features->most;
    *expanded = (struct expanded){
        malloc((rows + 1) * sizeof(int64_t)), malloc(most * sizeof(uint16_t)),
        features->ones ? NULL : malloc(most * sizeof(float)),
    };
    return expanded->starts && expanded->index && (features->ones || expanded->value) ? 0 : -1;
}

void close_expanded(struct expanded *expanded)
{
    free(expanded->starts);
    free(expanded->index);
    free(expanded->value);
}

struct sparse expand_some(
    const struct expanded *expanded, const struct features *features, const uint8_t *rows, int count
)
{
    expand_rows(features, rows, count, expanded->starts, expanded->index, expanded->value);
    return (struct sparse){expanded->starts, expanded->index, expanded->value};
}
