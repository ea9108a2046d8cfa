/* What batches of a replay are made by: draws by whole numbers, a sum tree of priorities, and rows gathered.
 *
 * All but the rewards are whole numbers, and these are added in the order of their steps: the same bits everywhere. What
 * algos/learning/replay has in NumPy too. */

#include <stdint.h>
#include <string.h>

#define REPLAY_ABI 2 /* goes up with every change that library.py must know of */
#define TOGETHER 16  /* ways down the tree that are gone side by side, so that one need not wait for the other's memory */
#define AHEAD 8      /* rows that are fetched before they are needed */

int native_abi(void) { return REPLAY_ABI; }

/* word * count / 2^64, rounded down. */
static uint64_t scale(uint64_t word, uint64_t count) { return (unsigned __int128)word * count >> 64; }

void scale_words(const uint64_t *words, int64_t length, uint64_t count, int64_t first, int64_t *out)
{
    for (int64_t i = 0; i < length; i++) out[i] = first + (int64_t)scale(words[i], count);
}

/* nodes: [2 size], of which node k is the sum of 2k and 2k + 1, and the last `size` are the leaves; a power of two. */

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

/* Draw `batch` leaves, one of each of as many equal parts of the sum, as often as the words last. */
void draw_leaves(
    const uint64_t *nodes, int64_t size, const uint64_t *words, int64_t length, int64_t batch, int64_t *out)
{
    const uint64_t share = nodes[1] / batch, rest = nodes[1] % batch;
    for (int64_t start = 0; start < length; start += TOGETHER) {
        const int64_t count = length - start < TOGETHER ? length - start : TOGETHER;
        uint64_t left[TOGETHER];
        int64_t node[TOGETHER];
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

/* Rows of a ring, whose length is a power of two, and where their fields lie. */
struct rows {
    const char *ring, *finals; /* of transitions; of the observations that truncated steps led to */
    int64_t mask, finals_mask; /* lengths - 1 */
    int64_t row_bytes, final_bytes, obs_bytes, action_bytes;
    int64_t obs_at, action_at, reward_at, end_at, final_at; /* bytes from a row's beginning */
    int64_t num_envs, steps;                                   /* N; n of a window */
    int64_t frames, zeros; /* of an observation; whether zeros are ahead of an episode's first one, or that one again */
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

/* The observation of row `id`, or, where `newest` is given, the one that the row led to: frames from there back to the
 * beginning of the episode. */
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

/* The windows that begin at rows `ids`; an end is -1 of a terminal state, 0 of none, k of the final observation k - 1. */
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
