/* Inputs that a fingerprint is of, and the fingerprint: of every library, the same on every machine. */

#ifndef PADDOCK_RECORDED_H
#define PADDOCK_RECORDED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct inputs {
    uint64_t state;
};

/* Knuth's linear congruential generator; the upper half of its state. */
static inline uint32_t next_input(struct inputs *inputs)
{
    inputs->state = inputs->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(inputs->state >> 32);
}

/* A multiple of 2^-10 in [-2, 2). */
static inline float next_number(struct inputs *inputs) { return (float)((int32_t)(next_input(inputs) >> 20) - 2048) * 0x1p-10f; }

static inline uint64_t hash(uint64_t before, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        before = (before ^ word) * 0x9e3779b97f4a7c15u;
        before ^= before >> 29;
    }
    return before;
}

#endif
