/* As player.h, for observations that are rows of bytes and discrete actions. */

#pragma once

#include <stdlib.h>

#include "forward.h"
#include "policy.h"

struct row_player {
    struct generator generator[LANES];
    int64_t episode[LANES], length[LANES], choice[LANES];
    double total[LANES], reward[LANES];
    unsigned playing; /* mask of slots */
    int slots;        /* number in use */
    size_t widest;    /* layer, padded to whole vectors */
    void *group;
    unsigned char *rows;
    float *memory; /* scratch of `forward_some`, then outputs, in rows and in lanes */
    struct expanded expanded;
    struct features seen; /* features without normalization, for moments */
    struct expanded observed;
    float *dense;         /* features of one row, including zeros */
};

static void close_row_player(struct row_player *player)
{
    close_expanded(&player->expanded);
    close_expanded(&player->observed);
    free(player->dense);
    free(player->memory);
    free(player->rows);
    free(player->group);
    free(player);
}

static struct row_player *open_row_player(const struct rollout *rollout)
{
    const struct task *task = rollout->task;
    struct row_player *player = calloc(1, sizeof *player);
    if (!player) return NULL;
    for (int k = 1; k <= rollout->layers; k++)
        if (whole(rollout->sizes[k]) > player->widest) player->widest = whole(rollout->sizes[k]);
    /* Few enough slots that all threads have work. */
    const int64_t share = (rollout->episodes + rollout->threads - 1) / rollout->threads;
    player->slots = share < LANES ? (int)share : LANES;
    player->memory = aligned_alloc(64, player->widest * (2 * FORWARD_ROWS + LANES + LANES) * sizeof(float));
    player->rows = calloc(LANES, task->row_bytes);
    player->group = aligned_alloc(64, (task->group_bytes + 63) / 64 * 64);
    if (player->group) memset(player->group, 0, task->group_bytes);
    player->seen = *rollout->features;
    player->seen.mean = NULL, player->seen.ones = 0;
    player->dense = calloc(rollout->sizes[0], sizeof *player->dense);
    if (player->memory && player->rows && player->group && player->dense &&
        !open_expanded(&player->expanded, rollout->features, LANES) && !open_expanded(&player->observed, &player->seen, 1) &&
        !open_group(task, player->group, rollout->settings))
        return player;
    close_row_player(player);
    return NULL;
}

/* Assign the next episodes, if any, to free slots. */
static void assign_row_episodes(struct row_player *player, const struct rollout *rollout, int64_t *next)
{
    unsigned fresh = 0;
    for (int slot = 0; slot < player->slots; slot++) {
        if (player->playing >> slot & 1) continue;
        const int64_t episode = take_episode(rollout, next);
        if (episode < 0) break;
        seed_generator(&player->generator[slot], (uint64_t)rollout->seeds[episode]);
        player->episode[slot] = episode, player->length[slot] = 0, player->total[slot] = 0;
        fresh |= 1u << slot;
    }
    player->playing |= fresh;
    if (fresh)
        rollout->task->start_rows(player->group, rollout->settings, player->generator, fresh, player->rows);
}

/* Choose actions in `count` slots from `first` on, which share one member. */
static void choose_rows(struct row_player *player, const struct rollout *rollout, int first, int count)
{
    const int width = rollout->sizes[rollout->layers];
    const struct forward forward = {
        .weights = rollout->parameters + rollout->member[player->episode[first]] * rollout->num_parameters,
        .scratch = player->memory, .sizes = rollout->sizes, .layers = rollout->layers, .relu = rollout->relu,
    };
    const unsigned char *rows = player->rows + first * rollout->task->row_bytes;
    const struct sparse sparse = expand_some(&player->expanded, rollout->features, rows, count);
    float *out = player->memory + 2 * FORWARD_ROWS * player->widest;
    vf *lanes = (vf *)(out + LANES * player->widest);
    forward_some(&forward, NULL, &sparse, out, count, player->widest);
    gather_rows(out, width, count, lanes);
    forbid_lanes(rollout->features, rows, width, count, lanes);
    const vf choice = greatest(lanes, width);
    for (int i = 0; i < count; i++) player->choice[first + i] = (int64_t)(int32_t)choice[i];
}

/* Update the moments of observations, as `play` of algos/learning/episodes.py does. */
static void observe_rows(struct row_player *player, const struct rollout *rollout)
{
    const size_t width = rollout->sizes[0];
    float *dense = player->dense;
    for (unsigned rest = player->playing; rest; rest &= rest - 1) {
        const int slot = __builtin_ctz(rest);
        const int64_t episode = player->episode[slot];
        if (!rollout->observe[episode]) continue;
        const unsigned char *row = player->rows + slot * rollout->task->row_bytes;
        const struct sparse sparse = expand_some(&player->observed, &player->seen, row, 1);
        const double count = (double)(player->length[slot] + 1);
        double *mean = rollout->moment_mean + episode * width, *m2 = rollout->moment_m2 + episode * width;
        for (int64_t k = 0; k < sparse.starts[1]; k++) dense[sparse.index[k]] = sparse.value[k];
        for (size_t k = 0; k < width; k++) {
            const double delta = dense[k] - mean[k];
            mean[k] += delta / count;
            m2[k] += delta * (dense[k] - mean[k]);
        }
        for (int64_t k = 0; k < sparse.starts[1]; k++) dense[sparse.index[k]] = 0;
    }
}

static void act_rows(struct row_player *player, const struct rollout *rollout)
{
    if (rollout->members == 1) {
        choose_rows(player, rollout, 0, player->slots);
        return;
    }
    for (unsigned rest = player->playing; rest; rest &= rest - 1) choose_rows(player, rollout, __builtin_ctz(rest), 1);
}

static void step_row_player(struct row_player *player, const struct rollout *rollout)
{
    unsigned ended = rollout->task->step_rows(
        player->group, rollout->settings, player->generator, player->playing, player->choice, player->rows,
        player->reward
    );
    for (unsigned rest = player->playing; rest; rest &= rest - 1) {
        const int slot = __builtin_ctz(rest);
        player->total[slot] += player->reward[slot];
        if (++player->length[slot] != rollout->limit && !(ended >> slot & 1)) continue;
        rollout->returns[player->episode[slot]] = player->total[slot];
        rollout->lengths[player->episode[slot]] = player->length[slot];
        player->playing &= ~(1u << slot);
    }
}

static int play_rows(const struct rollout *rollout, int64_t *next)
{
    if (__atomic_load_n(next, __ATOMIC_RELAXED) >= rollout->episodes) return 0;
    struct row_player *player = open_row_player(rollout);
    if (!player) return -1;
    assign_row_episodes(player, rollout, next);
    while (player->playing) {
        observe_rows(player, rollout);
        act_rows(player, rollout);
        step_row_player(player, rollout);
        assign_row_episodes(player, rollout, next);
    }
    close_group(rollout->task, player->group);
    close_row_player(player);
    return 0;
}
