/* Updates of an actor and its critics, one after another: first the critics take a step, then the actor through what
 * they say; targets move with either. */

#ifndef PADDOCK_ALTERNATE_H
#define PADDOCK_ALTERNATE_H

#include "choices.h"
#include "numbers.h"

static float alpha_of(const struct actor_critic *own)
{
    const struct actor_critic_settings *settings = &own->settings;
    if (!settings->soft) return 0;
    return settings->learned ? quick_exp(splat(own->batches->log_alpha[0]))[0] : settings->alpha;
}

/* The entropy that alpha holds: where not all choices are legal, the same share of the most that there can be. */
static float wanted_entropy(const struct actor_critic *own, float most)
{
    const struct actor_critic_settings *settings = &own->settings;
    if (!settings->masked) return settings->target_entropy;
    return settings->target_entropy * most / quick_log(splat(own->choices > 2 ? own->choices : 2))[0];
}

/* Adam's step of log alpha, whose loss is -log alpha (log pi + wanted). */
static void learn_alpha(const struct actor_critic *own, float logprob, float wanted, float rate, float deviation)
{
    const struct adam *adam = &own->settings.adam;
    float *parameter = own->batches->log_alpha, *momentum = parameter + 1, *variance = parameter + 2;
    const float gradient = -(logprob + wanted);
    *momentum = *momentum * adam->momentum_decay + gradient * (1 - adam->momentum_decay);
    *variance = *variance * adam->variance_decay + (gradient * gradient) * (1 - adam->variance_decay);
    *parameter -= (*momentum * rate) / (root(splat(*variance))[0] * deviation + adam->epsilon);
}

/* Sums over rows, of a part after the other, as gradients are summed. */
static struct terms sum_up(const struct actor_critic *own)
{
    const int64_t rows = own->batches->rows;
    const int parts = count_parts(rows);
    struct terms total = {0};
    for (int p = 0; p < parts; p++) {
        struct terms part = {0};
        for (int64_t b = part_of(rows, parts, p); b < part_of(rows, parts, p + 1); b++) {
            const struct terms *row = &own->terms[b];
            part.critic_loss += row->critic_loss, part.value += row->value;
            part.actor_loss += row->actor_loss, part.logprob += row->logprob, part.most += row->most;
        }
        total.critic_loss += part.critic_loss, total.value += part.value;
        total.actor_loss += part.actor_loss, total.logprob += part.logprob, total.most += part.most;
    }
    return total;
}

static void report_critics(const struct actor_critic *own, int64_t u, float alpha)
{
    const struct terms total = sum_up(own);
    double *report = own->batches->report + ACTOR_CRITIC_REPORTED * u, rows = (double)own->batches->rows;
    report[0] = total.critic_loss * (own->settings.soft ? 0.5 : 1) / rows;
    report[1] = total.value / (rows * own->settings.critics);
    report[3] = alpha;
}

static void finish_actor(const struct actor_critic *own, float rate, float deviation)
{
    const struct terms total = sum_up(own);
    const double rows = (double)own->batches->rows;
    own->batches->actor_report[0] = total.actor_loss / rows, own->batches->actor_report[1] = -total.logprob / rows;
    const float wanted = wanted_entropy(own, (float)(total.most / rows));
    if (own->settings.learned) learn_alpha(own, (float)(total.logprob / rows), wanted, rate, deviation);
}

typedef void pass_rows(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
);

/* Do this member's share of rows. */
static void share_rows(const struct actor_critic *own, pass_rows *pass, int member, int64_t u, float alpha)
{
    const int64_t tiles = (own->batches->rows + TILE_ROWS - 1) / TILE_ROWS, size = own->team.size;
    int64_t first = tiles * member / size * TILE_ROWS, last = tiles * (member + 1) / size * TILE_ROWS;
    if (last > own->batches->rows) last = own->batches->rows;
    const int64_t blocks = (last - first + TOGETHER - 1) / TOGETHER;
    for (int64_t k = 0; first < last; k++) {
        int64_t count = ((last - first) / (blocks - k) + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
        if (count > last - first || k + 1 == blocks) count = last - first;
        pass(own, &own->spaces[member], u, first, (int)count, alpha);
        first += count;
    }
}

static void learn_from_replay(void *job, int member)
{
    struct actor_critic *own = job;
    const struct actor_critic_settings *settings = &own->settings;
    const struct batches *batches = own->batches;
    const int64_t rows = batches->rows;
    pass_rows *const critics_pass = own->choices ? pass_critics_of_choices : pass_critics;
    pass_rows *const actor_pass = own->choices ? pass_actor_of_choices : pass_actor;
    struct team *team = &own->team;
    for (int64_t u = 0, moved = 0; u < batches->updates; u++) {
        const int64_t number = batches->before + u + 1;
        const float alpha = alpha_of(own), tau = number % settings->target_every ? 0 : settings->tau;
        const float *observation = batches->observation + u * rows * own->row;
        share_rows(own, critics_pass, member, u, alpha);
        step_by_tape(
            &own->critics_tape, &own->critics, team, member, own->choices ? observation : own->input,
            own->choices ? own->row : own->observed + own->actions, rows, &settings->adam, batches->rates[u],
            batches->deviations[u], tau
        );
        if (member == 0) report_critics(own, u, alpha);
        if (number % settings->actor_every == 0) {
            const float rate = batches->actor_rates[moved], deviation = batches->actor_deviations[moved];
            meet(team, member);
            share_rows(own, actor_pass, member, u, alpha);
            step_by_tape(
                &own->actor_tape, &own->actor, team, member, observation, own->row, rows, &settings->adam, rate,
                deviation, settings->soft ? 0 : tau
            );
            if (member == 0) finish_actor(own, rate, deviation);
            moved++;
        } else if (!settings->soft && tau != 0) approach_share(&own->actor, team, member, tau);
        double *report = batches->report + ACTOR_CRITIC_REPORTED * u;
        if (member == 0) report[2] = batches->actor_report[0], report[4] = batches->actor_report[1];
        if (!stay(team, member)) break;
    }
}

static int update_actor_critic(struct actor_critic *own, const struct batches *batches)
{
    const int64_t tiles = (batches->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int most = own->settings.threads < batches->threads ? own->settings.threads : batches->threads;
    if (open_rows_of(own, batches->rows)) return -1;
    own->batches = batches;
    run_team(&own->team, most < tiles ? most : (int)tiles, learn_from_replay, own);
    return 0;
}

#endif
