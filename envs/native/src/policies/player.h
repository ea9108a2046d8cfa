/* Whole episodes, played by one thread: each slot of a group of environments takes the next episode when its own ends.
 *
 * A group has one or more ways (vectors) of LANES environments; slot i is lane i % LANES of way i / LANES. */

#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "row_player.h"

#define MAX_WAYS (MAX_LANES / LANES)

struct player {
    vf obs[MAX_OBSERVATION * MAX_WAYS], action[MAX_ACTION * MAX_WAYS]; /* row k of a way is [k * ways + way] */
    vd mean[MAX_WAYS][MAX_OBSERVATION], m2[MAX_WAYS][MAX_OBSERVATION]; /* of observations */
    struct generator generator[MAX_LANES];
    int64_t episode[MAX_LANES], length[MAX_LANES];
    double total[MAX_LANES], reward[MAX_LANES];
    unsigned playing, observed; /* masks of slots */
    int slots, ways;  /* slots: number in use */
    vf *parameters;   /* [ways, P]; NULL if all slots share one member's parameters */
    vf *one, *other;  /* values of a layer and of the next */
    void *group;
    int64_t choice[MAX_LANES]; /* for tasks with observations in rows, which are copied into lanes */
    float rows[LANES * MAX_OBSERVATION];
};

INLINE void *aligned_zeros(size_t bytes)
{
    const size_t line = 8 * MAX_LANES; /* the widest vector */
    bytes = (bytes + line - 1) / line * line;
    void *memory = aligned_alloc(line, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static void close_player(struct player *player)
{
    free(player->parameters);
    free(player->one);
    free(player->other);
    free(player->group);
    free(player);
}

static struct player *open_player(const struct rollout *rollout)
{
    struct player *player = aligned_zeros(sizeof *player);
    if (!player) return NULL;
    size_t widest = 0;
    for (int k = 0; k <= rollout->layers; k++)
        if ((size_t)rollout->sizes[k] > widest) widest = (size_t)rollout->sizes[k];
    player->ways = rollout->task->lanes / LANES;
    /* Whole registers of slots, but few enough that all threads have work. */
    int64_t registers = (rollout->episodes + rollout->threads * LANES - 1) / (rollout->threads * LANES);
    player->slots = LANES * (registers < player->ways ? (int)registers : player->ways);
    const size_t own = rollout->members == 1 ? 0 : (size_t)player->ways * (size_t)rollout->num_parameters;
    player->parameters = own ? aligned_zeros(own * sizeof(vf)) : NULL;
    player->one = aligned_zeros(widest * sizeof(vf));
    player->other = aligned_zeros(widest * sizeof(vf));
    player->group = aligned_zeros(rollout->task->group_bytes);
    if ((player->parameters || !own) && player->one && player->other && player->group &&
        !open_group(rollout->task, player->group, rollout->settings))
        return player;
    close_player(player);
    return NULL;
}

/* Copy rows of floats into lanes. */
INLINE void copy_rows(struct player *player, const struct task *task, unsigned mask)
{
    float *lanes = (float *)player->obs;
    for (; mask; mask &= mask - 1) {
        const int i = __builtin_ctz(mask);
        for (int k = 0; k < task->observations; k++) lanes[k * LANES + i] = player->rows[i * task->observations + k];
    }
}

INLINE void start_task(struct player *player, const struct rollout *rollout, unsigned mask)
{
    const struct task *task = rollout->task;
    if (task->start) {
        task->start(player->group, rollout->settings, player->generator, mask, (float *)player->obs);
        return;
    }
    task->start_rows(player->group, rollout->settings, player->generator, mask, (unsigned char *)player->rows);
    copy_rows(player, task, mask);
}

INLINE unsigned step_task(struct player *player, const struct rollout *rollout)
{
    const struct task *task = rollout->task;
    const float *action = (const float *)player->action;
    if (task->step)
        return task->step(
            player->group, rollout->settings, player->playing, action, (float *)player->obs, player->reward
        );
    for (int i = 0; i < LANES; i++) player->choice[i] = (int64_t)(int32_t)action[i];
    const unsigned ended = task->step_rows(
        player->group, rollout->settings, player->generator, player->playing, player->choice,
        (unsigned char *)player->rows, player->reward
    );
    copy_rows(player, task, player->playing);
    return ended;
}

/* Assign the next episodes, if any, to free slots. */
static void assign_episodes(struct player *player, const struct rollout *rollout, int64_t *next)
{
    unsigned fresh = 0;
    for (int slot = 0; slot < player->slots; slot++) {
        if (player->playing >> slot & 1) continue;
        const int64_t episode = take_episode(rollout, next);
        if (episode < 0) break;
        const int way = slot / LANES, lane = slot % LANES;
        if (player->parameters) {
            const float *own = rollout->parameters + (size_t)rollout->member[episode] * rollout->num_parameters;
            float *parameters = (float *)(player->parameters + way * rollout->num_parameters) + lane;
            for (int64_t k = 0; k < rollout->num_parameters; k++) parameters[k * LANES] = own[k];
        }
        seed_generator(&player->generator[slot], (uint64_t)rollout->seeds[episode]);
        player->episode[slot] = episode;
        player->length[slot] = 0;
        player->total[slot] = 0;
        for (int k = 0; k < rollout->task->observations; k++) player->mean[way][k][lane] = player->m2[way][k][lane] = 0;
        fresh |= 1u << slot;
        player->observed = (player->observed & ~(1u << slot)) | (unsigned)(rollout->observe[episode] != 0) << slot;
    }
    player->playing |= fresh;
    if (fresh) start_task(player, rollout, fresh);
}

/* Welford's update, with the sums and divisions of `play`. */
static void count_observations(struct player *player, int observations, int way, unsigned mask)
{
    const vl lanes = widen_mask(from_bits(mask));
    vd *means = player->mean[way], *m2 = player->m2[way], seen;
    for (int lane = 0; lane < LANES; lane++) seen[lane] = (double)(player->length[way * LANES + lane] + 1);
    for (int k = 0; k < observations; k++) {
        vd x = widen(player->obs[k * player->ways + way]), delta = x - means[k];
        vd mean = means[k] + delta / seen;
        means[k] = pick_d(lanes, mean, means[k]);
        m2[k] = pick_d(lanes, m2[k] + delta * (x - mean), m2[k]);
    }
}

/* Choose actions in all active slots; return the slots with a non-finite action. */
static unsigned act_all(struct player *player, const struct rollout *rollout)
{
    unsigned finite = 0;
    for (int way = 0; way < player->ways; way++) {
        if (!(player->playing >> way * LANES & ALL_LANES)) continue;
        const float *parameters = rollout->parameters;
        if (player->parameters) parameters = (const float *)(player->parameters + way * rollout->num_parameters);
        vi fine = choose_actions(
            rollout, parameters, player->obs + way, player->action + way, player->ways, player->one, player->other
        );
        finite |= to_bits(fine) << way * LANES;
    }
    return player->playing & ~finite;
}

/* Step all active slots; return those whose episodes ended. */
static unsigned step_all(struct player *player, const struct rollout *rollout)
{
    const struct task *task = rollout->task;
    for (int way = 0; way < player->ways; way++) {
        unsigned mask = player->playing & player->observed & ALL_LANES << way * LANES;
        if (mask) count_observations(player, task->observations, way, mask >> way * LANES);
    }
    unsigned ended = step_task(player, rollout);
    for (unsigned rest = player->playing; rest; rest &= rest - 1) {
        int slot = __builtin_ctz(rest);
        player->total[slot] += player->reward[slot];
        if (++player->length[slot] == rollout->limit) ended |= 1u << slot;
    }
    return ended;
}

/* Record the episodes of these slots and free them. */
static void end_episodes(struct player *player, const struct rollout *rollout, unsigned ended)
{
    const int width = rollout->task->observations;
    for (unsigned rest = ended; rest; rest &= rest - 1) {
        int slot = __builtin_ctz(rest), way = slot / LANES, lane = slot % LANES;
        int64_t episode = player->episode[slot];
        rollout->returns[episode] = player->total[slot];
        rollout->lengths[episode] = player->length[slot];
        for (int k = 0; k < width && player->observed >> slot & 1; k++) {
            rollout->moment_mean[episode * width + k] = player->mean[way][k][lane];
            rollout->moment_m2[episode * width + k] = player->m2[way][k][lane];
        }
    }
    player->playing &= ~ended;
}

static int play_lanes(const struct rollout *rollout, int64_t *next)
{
    if (rollout->features) return play_rows(rollout, next);
    if (__atomic_load_n(next, __ATOMIC_RELAXED) >= rollout->episodes) return 0;
    struct player *player = open_player(rollout);
    if (!player) return -1;
    assign_episodes(player, rollout, next);
    while (player->playing) {
        unsigned ended = act_all(player, rollout);
        for (unsigned failed = ended; failed; failed &= failed - 1) player->total[__builtin_ctz(failed)] = NAN;
        /* Failed episodes end before the others step. */
        if (!ended) ended = step_all(player, rollout);
        if (!ended) continue;
        end_episodes(player, rollout, ended);
        assign_episodes(player, rollout, next);
    }
    close_group(rollout->task, player->group);
    close_player(player);
    return 0;
}
