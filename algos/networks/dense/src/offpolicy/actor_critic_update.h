/* Updates of SAC, TD3 and DDPG: a step of the critics, a step of the actor, and Polyak updates of the targets. */

#ifndef PADDOCK_ACTOR_CRITIC_UPDATE_H
#define PADDOCK_ACTOR_CRITIC_UPDATE_H

#include "discrete.h"
#include "continuous.h"

static float alpha_of(const struct actor_critic *learner)
{
    const struct actor_critic_settings *settings = &learner->settings;
    if (!settings->soft) return 0;
    return settings->learned ? fast_exp(splat(learner->batches->log_alpha[0]))[0] : settings->alpha;
}

/* Return the target entropy; with action masks, scaled to the maximum entropy of the legal actions. */
static float find_target_entropy(const struct actor_critic *learner, float max_entropy)
{
    const struct actor_critic_settings *settings = &learner->settings;
    if (!settings->masked) return settings->target_entropy;
    return settings->target_entropy * max_entropy / fast_log(splat(learner->choices > 2 ? learner->choices : 2))[0];
}

/* Take a step of Adam on log alpha, whose loss is -log alpha (log pi + target_entropy). */
static void learn_alpha(
    const struct actor_critic *learner, float logprob, float target_entropy, float rate, float deviation
)
{
    const struct adam *adam = &learner->settings.adam;
    float *parameter = learner->batches->log_alpha, *momentum = parameter + 1, *variance = parameter + 2;
    const float gradient = -(logprob + target_entropy);
    *momentum = *momentum * adam->momentum_decay + gradient * (1 - adam->momentum_decay);
    *variance = *variance * adam->variance_decay + (gradient * gradient) * (1 - adam->variance_decay);
    *parameter -= (*momentum * rate) / (root(splat(*variance))[0] * deviation + adam->epsilon);
}

static struct terms sum_terms(const struct actor_critic *learner)
{
    struct terms total = {0};
    for (int64_t b = 0; b < learner->batches->rows; b++) {
        const struct terms *row = &learner->terms[b];
        total.critic_loss += row->critic_loss, total.value += row->value;
        total.actor_loss += row->actor_loss, total.logprob += row->logprob, total.max_entropy += row->max_entropy;
    }
    return total;
}

static void report_critics(const struct actor_critic *learner, int64_t u, float alpha)
{
    const struct terms total = sum_terms(learner);
    double *report = learner->batches->report + ACTOR_CRITIC_REPORTED * u, rows = (double)learner->batches->rows;
    report[0] = total.critic_loss * (learner->settings.soft ? 0.5 : 1) / rows;
    report[1] = total.value / (rows * learner->settings.critics);
    report[3] = alpha;
}

static void finish_actor(const struct actor_critic *learner, float rate, float deviation)
{
    const struct terms total = sum_terms(learner);
    const double rows = (double)learner->batches->rows;
    learner->batches->actor_report[0] = total.actor_loss / rows;
    learner->batches->actor_report[1] = -total.logprob / rows;
    const float target_entropy = find_target_entropy(learner, (float)(total.max_entropy / rows));
    if (learner->settings.learned) learn_alpha(learner, (float)(total.logprob / rows), target_entropy, rate, deviation);
}

typedef void train_rows(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha
);

/* Process this thread's share of the rows. */
static void share_rows(const struct actor_critic *learner, train_rows *pass, int member, int64_t u, float alpha)
{
    const int64_t groups = (learner->batches->rows + ROW_GROUP - 1) / ROW_GROUP, size = learner->team.size;
    int64_t first = groups * member / size * ROW_GROUP, last = groups * (member + 1) / size * ROW_GROUP;
    if (last > learner->batches->rows) last = learner->batches->rows;
    const int64_t blocks = (last - first + REPLAY_BLOCK - 1) / REPLAY_BLOCK;
    for (int64_t k = 0; first < last; k++) {
        int64_t count = ((last - first) / (blocks - k) + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
        if (count > last - first || k + 1 == blocks) count = last - first;
        pass(learner, &learner->spaces[member], u, first, (int)count, alpha);
        first += count;
    }
}

static void learn_actor_critic(void *job, int member)
{
    struct actor_critic *learner = job;
    const struct actor_critic_settings *settings = &learner->settings;
    const struct batches *batches = learner->batches;
    const int64_t rows = batches->rows;
    train_rows *const train_critics = learner->choices ? train_critics_discrete : train_critics_continuous;
    train_rows *const train_actor = learner->choices ? train_actor_discrete : train_actor_continuous;
    struct team *team = &learner->team;
    for (int64_t u = 0, moved = 0; u < batches->updates; u++) {
        const int64_t number = batches->before + u + 1;
        const float alpha = alpha_of(learner), tau = number % settings->target_every ? 0 : settings->tau;
        const float *observation = batches->observation + u * rows * learner->row;
        share_rows(learner, train_critics, member, u, alpha);
        step_from_tape(
            &learner->critics_tape, &learner->critics, team, member, learner->choices ? observation : learner->input,
            learner->choices ? learner->row : learner->observed + learner->actions, rows, &settings->adam,
            batches->rates[u], batches->deviations[u], tau
        );
        if (member == 0) report_critics(learner, u, alpha);
        if (number % settings->actor_every == 0) {
            const float rate = batches->actor_rates[moved], deviation = batches->actor_deviations[moved];
            team_barrier(team, member);
            share_rows(learner, train_actor, member, u, alpha);
            step_from_tape(
                &learner->actor_tape, &learner->actor, team, member, observation, learner->row, rows, &settings->adam,
                rate, deviation, settings->soft ? 0 : tau
            );
            if (member == 0) finish_actor(learner, rate, deviation);
            moved++;
        } else if (!settings->soft && tau != 0) move_targets_share(&learner->actor, team, member, tau);
        double *report = batches->report + ACTOR_CRITIC_REPORTED * u;
        if (member == 0) report[2] = batches->actor_report[0], report[4] = batches->actor_report[1];
        if (!team_continue(team, member)) break;
    }
}

static int update_actor_critic(struct actor_critic *learner, const struct batches *batches)
{
    const int64_t groups = (batches->rows + ROW_GROUP - 1) / ROW_GROUP;
    const int most = learner->settings.threads < batches->threads ? learner->settings.threads : batches->threads;
    if (open_rows_of(learner, batches->rows)) return -1;
    learner->batches = batches;
    run_team(&learner->team, most < groups ? most : (int)groups, learn_actor_critic, learner);
    return 0;
}

#endif
