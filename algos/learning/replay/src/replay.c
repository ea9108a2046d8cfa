/* Sampling and gathering of replay batches: random integers, a sum tree of priorities, and rows.
 *
 * Results are bit-identical everywhere and equal to the NumPy versions in algos/learning/replay, since only rewards are
 * floats, and they are added in step order. */

#include <stdint.h>
#include <string.h>

#define REPLAY_ABI 2   /* raise with every change to the interface of library.py */
#define INTERLEAVED 16 /* tree descents interleaved to hide memory latency */
#define AHEAD 8        /* rows prefetched */

int native_abi(void) { return REPLAY_ABI; }

/* word * count / 2^64, rounded down. */
static uint64_t scale(uint64_t word, uint64_t count) { return (unsigned __int128)word * count >> 64; }

void scale_words(const uint64_t *words, int64_t length, uint64_t count, int64_t first, int64_t *out)
{
    for (int64_t i = 0; i < length; i++) out[i] = first + (int64_t)scale(words[i], count);
}

/* nodes: [2 size], size a power of two; node k is the sum of nodes 2k and 2k + 1; the last `size` are the leaves. */

void set_leaves(uint64_t *nodes, int64_t size, const int64_t *at, const uint32_t *leaves, int64_t length)
{
    for (int64_t i = 0; i < length; i++) nodes[size + at[i]] = leaves[i];
    for (int64_t i = 0; i < length; i++)
        for (int64_t k = (size + at[i]) >> 1; k; k >>= 1) nodes[k] = nodes[2 * k] + nodes[2 * k + 1];
}

void sum_leaves(uint64_t *nodes, int64_t size)
{
    for (int64_t k = size - 1; k; k--) nodes[k] = nodes[2 * k] + nodes[2 * k + 1];
}

/* Sample leaves, stratified: one from each of `batch` equal ranges of the sum, repeated for all words. */
void draw_leaves(
    const uint64_t *nodes, int64_t size, const uint64_t *words, int64_t length, int64_t batch, int64_t *out)
{
    const uint64_t share = nodes[1] / batch, rest = nodes[1] % batch;
    for (int64_t start = 0; start < length; start += INTERLEAVED) {
        const int64_t count = length - start < INTERLEAVED ? length - start : INTERLEAVED;
        uint64_t left[INTERLEAVED];
        int64_t node[INTERLEAVED];
        for (int64_t i = 0; i < count; i++) {
            const uint64_t part = (start + i) % batch;
            const uint64_t low = part * share + part * rest / batch;
            const uint64_t high = (part + 1) * share + (part + 1) * rest / batch;
            left[i] = low + scale(words[start + i], high - low);
            node[i] = 1;
        }
        for (int64_t level = 1; level < size; level *= 2)
            for (int64_t i = 0; i < count; i++) {
                const uint64_t first = nodes[2 * node[i]];
                const int second = left[i] >= first;
                left[i] -= second ? first : 0;
                node[i] = 2 * node[i] + second;
            }
        for (int64_t i = 0; i < count; i++) out[start + i] = node[i] - size;
    }
}

/* Rings of rows, whose lengths are powers of two, and the offsets of their fields. */
struct rows {
    const char *ring, *finals; /* transitions; final observations of truncated steps */
    int64_t mask, finals_mask; /* lengths - 1 */
    int64_t row_bytes, final_bytes, obs_bytes, action_bytes;
    int64_t obs_at, action_at, reward_at, end_at, final_at; /* bytes from a row's beginning */
    int64_t num_envs, steps;                                /* N; n of a window */
    int64_t frames, zeros; /* frames of a stack; whether episodes start with zeros or repeat their first frame */
    const float *powers;                                    /* [n + 1], of gamma */
};

struct gathered {
    char *obs, *action, *next_obs;
    float *reward, *discount;
};

static int64_t read_end(const struct rows *rows, const char *row)
{
    int64_t end;
    memcpy(&end, row + rows->end_at, sizeof end);
    return end;
}

static float read_reward(const struct rows *rows, const char *row)
{
    float reward;
    memcpy(&reward, row + rows->reward_at, sizeof reward);
    return reward;
}

static const char *find_row(const struct rows *rows, int64_t id)
{
    return rows->ring + (id & rows->mask) * rows->row_bytes;
}

/* Copy the observation of row `id`, or its final observation if `newest` is given, with the episode's older frames. */
static void copy_obs(const struct rows *rows, int64_t id, const char *newest, char *out)
{
    const int64_t bytes = rows->obs_bytes;
    int64_t left = rows->frames;
    if (newest) memcpy(out + --left * bytes, newest, bytes);
    for (int going = 1; left--;) {
        if (going || !rows->zeros)
            memcpy(out + left * bytes, find_row(rows, id) + rows->obs_at, bytes);
        else
            memset(out + left * bytes, 0, bytes);
        going = going && left && id >= rows->num_envs && !read_end(rows, find_row(rows, id - rows->num_envs));
        if (going) id -= rows->num_envs;
    }
}

/* Gather the windows that begin at rows `ids`. Ends are -1: terminated, 0: continues, k: truncated, final obs k - 1. */
void gather_windows(const struct rows *rows, const int64_t *ids, int64_t length, const struct gathered *out)
{
    for (int64_t i = 0; i < length; i++) {
        for (int64_t m = 0; i + AHEAD < length && m <= rows->steps; m++) {
            __builtin_prefetch(find_row(rows, ids[i + AHEAD] + m * rows->num_envs));
            __builtin_prefetch(find_row(rows, ids[i + AHEAD] + m * rows->num_envs) + rows->end_at);
        }
        const char *row = find_row(rows, ids[i]);
        copy_obs(rows, ids[i], NULL, out->obs + i * rows->frames * rows->obs_bytes);
        memcpy(out->action + i * rows->action_bytes, row + rows->action_at, rows->action_bytes);
        float total = read_reward(rows, row);
        int64_t end = read_end(rows, row), m = 1;
        for (; !end && m < rows->steps; m++) {
            row = find_row(rows, ids[i] + m * rows->num_envs);
            total += rows->powers[m] * read_reward(rows, row);
            end = read_end(rows, row);
        }
        const char *final = rows->finals + ((end - 1) & rows->finals_mask) * rows->final_bytes + rows->final_at;
        const int64_t last = ids[i] + (m - 1) * rows->num_envs;
        char *next = out->next_obs + i * rows->frames * rows->obs_bytes;
        copy_obs(rows, end > 0 ? last : last + rows->num_envs, end > 0 ? final : NULL, next);
        out->reward[i] = total;
        out->discount[i] = end < 0 ? 0 : rows->powers[m];
    }
}
