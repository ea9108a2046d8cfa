/* NumPy's default generator, bit-identical: SeedSequence (O'Neill's seed_seq), PCG64 XSL-RR (O'Neill 2014,
 * HMC-CS-2014-0905), and basic distributions (numpy/random/src/distributions). */

#include "runtime/native.h"

#define POOL 4
#define STATE_WORDS 8

static uint32_t hashed(uint32_t value, uint32_t *constant, uint32_t factor)
{
    value ^= *constant;
    *constant *= factor;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mixed(uint32_t x, uint32_t y)
{
    uint32_t result = 0xca01f9ddu * x - 0x4973f715u * y;
    return result ^ result >> 16;
}

static void advance(struct generator *generator)
{
    const unsigned __int128 multiplier = (unsigned __int128)2549297995355413924u << 64 | 4865540595714422341u;
    generator->state = generator->state * multiplier + generator->increment;
}

static uint64_t next_64(struct generator *generator)
{
    advance(generator);
    uint64_t high = (uint64_t)(generator->state >> 64), folded = high ^ (uint64_t)generator->state;
    unsigned rotation = (unsigned)(high >> 58);
    return folded >> rotation | folded << (-rotation & 63);
}

/* Return the lower half; the upper half is buffered for the next call. */
static uint32_t next_32(struct generator *generator)
{
    if (generator->has_half) {
        generator->has_half = 0;
        return generator->half;
    }
    uint64_t both = next_64(generator);
    generator->half = (uint32_t)(both >> 32), generator->has_half = 1;
    return (uint32_t)both;
}

void seed_generator(struct generator *generator, uint64_t seed)
{
    const uint32_t entropy[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t pool[POOL], word[STATE_WORDS], constant = 0x43b0d7e5;
    for (int i = 0; i < POOL; i++) pool[i] = hashed(entropy[i], &constant, 0x931e8875);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to) pool[to] = mixed(pool[to], hashed(pool[from], &constant, 0x931e8875));
    constant = 0x8b51f9dd;
    for (int i = 0; i < STATE_WORDS; i++) word[i] = hashed(pool[i % POOL], &constant, 0x58f38ded);
    unsigned __int128 part[2] = {0, 0}; /* state and stream: two 64-bit words each, upper first */
    for (int i = 0; i < STATE_WORDS / 2; i++)
        part[i / 2] = part[i / 2] << 64 | (uint64_t)word[2 * i + 1] << 32 | word[2 * i];
    *generator = (struct generator){.increment = part[1] << 1 | 1};
    advance(generator);
    generator->state += part[0];
    advance(generator);
}

double draw(struct generator *generator)
{
    return (double)(next_64(generator) >> 11) * (1.0 / 9007199254740992.0); /* 2^-53 */
}

double draw_uniform(struct generator *generator, double low, double high)
{
    return low + (high - low) * draw(generator);
}

/* Lemire 2019, arXiv:1805.10941, with 32 bits if the range allows, as in NumPy. */
int64_t draw_integer(struct generator *generator, int64_t low, int64_t high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low;
    if (range <= 1) return low;
    if (range == (uint64_t)1 << 32) return low + (int64_t)next_32(generator);
    if (range < (uint64_t)1 << 32) {
        uint32_t few = (uint32_t)range, threshold = -few % few;
        uint64_t product;
        do product = (uint64_t)next_32(generator) * few;
        while ((uint32_t)product < threshold);
        return (int64_t)((uint64_t)low + (product >> 32));
    }
    uint64_t threshold = -range % range;
    unsigned __int128 product;
    do product = (unsigned __int128)next_64(generator) * range;
    while ((uint64_t)product < threshold);
    return (int64_t)((uint64_t)low + (uint64_t)(product >> 64));
}

/* Rejection sampling with the smallest bit mask. */
uint32_t draw_masked(struct generator *generator, uint32_t last)
{
    if (!last) return 0;
    uint32_t mask = 0xffffffffu >> __builtin_clz(last), value;
    do value = next_32(generator) & mask;
    while (value > last);
    return value;
}
