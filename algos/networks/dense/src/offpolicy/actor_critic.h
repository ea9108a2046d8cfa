/* An actor and its critics that learn from replay at one width of lanes: SAC, TD3 and DDPG.
 *
 * In an update first the critics take a step, then the actor through their inputs; targets move with either. */

#ifndef PADDOCK_ACTOR_CRITIC_H
#define PADDOCK_ACTOR_CRITIC_H

#include "squashed.h"
#include "tape.h"

struct workspace { /* of one thread, for TOGETHER rows */
    struct tape actor, critics; /* of what need not be kept */
    struct drawn drawn;
    float *input;     /* [TOGETHER, observed + actions] */
    float *by_input;  /* [TOGETHER, wide_in], of the critics */
    float *by_action; /* [actions, TOGETHER], the actor's gradients */
};

struct terms { /* of a row, which sums are taken of */
    double critic_loss, value, actor_loss, logprob;
};

struct actor_critic {
    struct actor_critic_settings settings;
    int observed, actions;
    struct plan actor_plan, critics_plan;
    struct descent actor, critics;
    int64_t rows; /* that there is room for */
    struct tape actor_tape, critics_tape;
    float *input; /* [rows, observed + actions] */
    struct terms *terms;
    struct workspace *spaces; /* [threads] */
    struct team team;
    const struct lessons *lessons;
};

static int open_workspace(struct workspace *space, const struct actor_critic *own)
{
    const int wide_in = own->critics_plan.layers[0].wide_in;
    space->input = zeros((size_t)TOGETHER * (own->observed + own->actions) * sizeof(float));
    space->by_input = zeros((size_t)TOGETHER * wide_in * sizeof(float));
    space->by_action = zeros((size_t)TOGETHER * own->actions * sizeof(float));
    int failed = open_tape(&space->actor, &own->actor_plan, TOGETHER);
    failed |= open_tape(&space->critics, &own->critics_plan, TOGETHER) | open_drawn(&space->drawn, own->actions);
    return failed || !space->input || !space->by_input || !space->by_action ? -1 : 0;
}

static void close_workspace(struct workspace *space)
{
    close_tape(&space->actor);
    close_tape(&space->critics);
    close_drawn(&space->drawn);
    free(space->input);
    free(space->by_input);
    free(space->by_action);
}

static void close_rows_of(struct actor_critic *own)
{
    close_tape(&own->actor_tape);
    close_tape(&own->critics_tape);
    free(own->input);
    free(own->terms);
    own->input = NULL, own->terms = NULL, own->rows = 0;
}

/* Make room for minibatches of so many rows. */
static int open_rows_of(struct actor_critic *own, int64_t rows)
{
    if (rows <= own->rows) return 0;
    close_rows_of(own);
    own->input = zeros(rows * (own->observed + own->actions) * sizeof(float));
    own->terms = zeros(rows * sizeof *own->terms);
    if (open_tape(&own->actor_tape, &own->actor_plan, rows) | open_tape(&own->critics_tape, &own->critics_plan, rows))
        return -1;
    if (!own->input || !own->terms) return -1;
    own->rows = rows;
    return 0;
}

static void close_actor_critic(struct actor_critic *own)
{
    for (int k = 0; own->spaces && k < own->settings.threads; k++) close_workspace(&own->spaces[k]);
    close_rows_of(own);
    free(own->spaces);
    close_descent(&own->actor);
    close_descent(&own->critics);
    close_plan(&own->actor_plan);
    close_plan(&own->critics_plan);
    free(own);
}

/* NULL: no memory. */
static struct actor_critic *open_actor_critic(const struct actor_critic_settings *settings)
{
    const struct chain actor = {settings->actor, settings->actor_layers, 0, 0, 0};
    const struct chain critic = {settings->critic, settings->critic_layers, 0, 1, 0}, critics[] = {critic, critic};
    struct actor_critic *own = zeros(sizeof *own);
    if (!own) return NULL;
    own->settings = *settings;
    own->observed = settings->actor[0], own->actions = settings->critic[0] - settings->actor[0];
    int failed = !(own->spaces = zeros(settings->threads * sizeof *own->spaces));
    failed = failed || open_plan(&own->actor_plan, &actor, 1, 0, settings->relu);
    failed = failed || open_plan(&own->critics_plan, critics, settings->critics, 0, settings->relu);
    failed = failed || open_descent(&own->actor, &own->actor_plan, !settings->soft);
    failed = failed || open_descent(&own->critics, &own->critics_plan, 1);
    failed = failed || open_parts(&own->actor, 1) || open_parts(&own->critics, 1);
    for (int k = 0; !failed && k < settings->threads; k++) failed = open_workspace(&own->spaces[k], own);
    if (!failed) return own;
    close_actor_critic(own);
    return NULL;
}

static void load_actor_critic(struct actor_critic *own, const struct vectors *actor, const struct vectors *critics)
{
    load_descent(&own->actor, actor);
    load_descent(&own->critics, critics);
}

static void save_actor_critic(
    const struct actor_critic *own, const struct vectors *actor, const struct vectors *critics
)
{
    save_descent(&own->actor, actor);
    if (critics) save_descent(&own->critics, critics);
}

/* What the last layer of a chain gave of a row. */
INLINE float *given_of(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->outputs[k] + row * tape->plan->layers[k].wide;
}

INLINE float *by_given(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->by[k] + row * tape->plan->layers[k].wide;
}

INLINE int outputs_wide(const struct actor_critic *own)
{
    return own->actor_plan.layers[last_layer(&own->actor_plan, 0)].wide;
}

/* Compute critics on observations and the actions that were drawn for them. */
static void judge_drawn(
    const struct actor_critic *own, struct workspace *space, const float *parameters, const float *observation,
    int critics, int count
)
{
    const int row = own->observed + own->actions;
    for (int b = 0; b < count; b++) {
        float *to = space->input + (size_t)b * row;
        memcpy(to, observation + (size_t)b * own->observed, own->observed * sizeof *to);
        for (int c = 0; c < own->actions; c++) to[own->observed + c] = space->drawn.action[c * TOGETHER + b];
    }
    for (int c = 0; c < critics; c++) run(&space->critics, c, parameters, space->input, row, 0, count);
}

/* What the values of rows `start` .. are to become. */
static void find_targets(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha,
    float *target
)
{
    const struct actor_critic_settings *settings = &own->settings;
    const struct lessons *lessons = own->lessons;
    const int soft = settings->soft, wide = outputs_wide(own);
    const size_t at = u * lessons->rows + start, noise_at = (soft ? 2 * u : u) * lessons->rows + start;
    const float *observation = lessons->next_observation + at * own->observed;
    const float *noise = lessons->noise + noise_at * own->actions, *out = given_of(&space->actor, 0, 0);
    run(&space->actor, 0, soft ? own->actor.parameters : own->actor.targets, observation, own->observed, 0, count);
    if (soft) draw_squashed(&space->drawn, out, wide, noise, count);
    else take_tangent(&space->drawn, out, wide, noise, settings->target_noise, settings->target_noise_clip, count);
    judge_drawn(own, space, own->critics.targets, observation, settings->critics, count);
    for (int b = 0; b < count; b++) {
        float q = *given_of(&space->critics, 0, b);
        if (settings->critics > 1 && *given_of(&space->critics, 1, b) < q) q = *given_of(&space->critics, 1, b);
        if (soft) q = q - alpha * space->drawn.logprob[b];
        target[b] = lessons->reward[at + b] + lessons->discount[at + b] * q;
    }
}

/* Let rows `start` .. go through the critics, and back. */
static void pass_critics(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct actor_critic_settings *settings = &own->settings;
    const struct lessons *lessons = own->lessons;
    const struct tape *tape = &own->critics_tape;
    const float share = 1.0f / (float)lessons->rows, factor = settings->soft ? share : share + share;
    const int row = own->observed + own->actions;
    const size_t at = u * lessons->rows + start;
    float target[TOGETHER], *input = own->input + start * row;
    find_targets(own, space, u, start, count, alpha, target);
    for (int b = 0; b < count; b++) {
        float *to = input + (size_t)b * row;
        memcpy(to, lessons->observation + (at + b) * own->observed, own->observed * sizeof *to);
        memcpy(to + own->observed, lessons->action + (at + b) * own->actions, own->actions * sizeof *to);
    }
    for (int c = 0; c < settings->critics; c++) run(tape, c, own->critics.parameters, input, row, start, count);
    for (int b = 0; b < count; b++) {
        const float weight = lessons->weight[at + b];
        float squares = 0, distance = 0;
        double value = 0;
        for (int c = 0; c < settings->critics; c++) {
            const float q = *given_of(tape, c, start + b), error = q - target[b];
            squares += error * error, distance += fabsf(error), value += q;
            *by_given(tape, c, start + b) = error * (weight * factor);
        }
        lessons->distance[at + b] = settings->critics > 1 ? distance * 0.5f : distance;
        own->terms[start + b].critic_loss = weight * squares, own->terms[start + b].value = value;
    }
    for (int c = 0; c < settings->critics; c++) run_back(tape, c, own->critics.back, start, count, NULL);
}

/* Gradients by actions of the rows that learn from a critic, through its inputs; `by_q` is that by its value. */
static void climb(
    const struct actor_critic *own, struct workspace *space, int critic, const int *chosen, int rows, float by_q
)
{
    const struct plan *plan = &own->critics_plan;
    const struct tape *tape = &space->critics;
    const int wide_in = plan->layers[plan->begin[critic]].wide_in;
    const int whole_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; /* nobody looks at the last rows */
    for (int k = plan->begin[critic]; k < last_layer(plan, critic); k++) {
        const size_t wide = plan->layers[k].wide;
        float *output = tape->outputs[k];
        for (int i = 0; i < rows; i++)
            if (chosen[i] != i) memcpy(output + i * wide, output + chosen[i] * wide, wide * sizeof *output);
    }
    for (int i = 0; i < whole_tiles; i++) *by_given(tape, critic, i) = by_q;
    run_back(tape, critic, own->critics.back, 0, whole_tiles, space->by_input);
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < own->actions; c++)
            space->by_action[c * TOGETHER + chosen[i]] = space->by_input[(size_t)i * wide_in + own->observed + c];
}

/* Let rows `start` .. go through the actor and on through the critics, and back. */
static void pass_actor(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct lessons *lessons = own->lessons;
    const struct tape *tape = &own->actor_tape;
    const float share = 1.0f / (float)lessons->rows;
    const int soft = own->settings.soft, critics = soft ? own->settings.critics : 1, wide = outputs_wide(own);
    const float *observation = lessons->observation + (u * lessons->rows + start) * own->observed;
    const float *noise = lessons->noise + ((2 * u + 1) * lessons->rows + start) * own->actions;
    const float *out = given_of(tape, 0, start);
    run(tape, 0, own->actor.parameters, observation, own->observed, start, count);
    if (soft) draw_squashed(&space->drawn, out, wide, noise, count);
    else take_tangent(&space->drawn, out, wide, NULL, 0, 0, count);
    judge_drawn(own, space, own->critics.parameters, observation, critics, count);
    int chosen[2][TOGETHER], many[2] = {0, 0};
    for (int b = 0; b < count; b++) {
        const int c = critics > 1 && *given_of(&space->critics, 1, b) < *given_of(&space->critics, 0, b);
        const float q = *given_of(&space->critics, c, b), logprob = soft ? space->drawn.logprob[b] : 0;
        chosen[c][many[c]++] = b;
        own->terms[start + b].actor_loss = soft ? alpha * logprob - q : -q, own->terms[start + b].logprob = logprob;
    }
    for (int c = 0; c < critics; c++)
        if (many[c]) climb(own, space, c, chosen[c], many[c], -share);
    float *by = by_given(tape, 0, start);
    if (soft) squashed_gradient(&space->drawn, space->by_action, alpha * share, by, wide, count);
    else tangent_gradient(&space->drawn, space->by_action, by, wide, count);
    run_back(tape, 0, own->actor.back, start, count, NULL);
}

static float alpha_of(const struct actor_critic *own)
{
    const struct actor_critic_settings *settings = &own->settings;
    if (!settings->soft) return 0;
    return settings->learned ? quick_exp(splat(own->lessons->log_alpha[0]))[0] : settings->alpha;
}

/* Adam's step of log alpha, whose loss is -log alpha (log pi + target entropy). */
static void learn_alpha(const struct actor_critic *own, float logprob, float rate, float deviation)
{
    const struct adam *adam = &own->settings.adam;
    float *parameter = own->lessons->log_alpha, *momentum = parameter + 1, *variance = parameter + 2;
    const float gradient = -(logprob + own->settings.target_entropy);
    *momentum = *momentum * adam->momentum_decay + gradient * (1 - adam->momentum_decay);
    *variance = *variance * adam->variance_decay + (gradient * gradient) * (1 - adam->variance_decay);
    *parameter -= (*momentum * rate) / (root(splat(*variance))[0] * deviation + adam->epsilon);
}

/* Sums over rows, of a part after the other, as gradients are summed. */
static struct terms sum_up(const struct actor_critic *own)
{
    const int64_t rows = own->lessons->rows;
    const int parts = count_parts(rows);
    struct terms total = {0};
    for (int p = 0; p < parts; p++) {
        struct terms part = {0};
        for (int64_t b = part_of(rows, parts, p); b < part_of(rows, parts, p + 1); b++) {
            const struct terms *row = &own->terms[b];
            part.critic_loss += row->critic_loss, part.value += row->value;
            part.actor_loss += row->actor_loss, part.logprob += row->logprob;
        }
        total.critic_loss += part.critic_loss, total.value += part.value;
        total.actor_loss += part.actor_loss, total.logprob += part.logprob;
    }
    return total;
}

static void report_critics(const struct actor_critic *own, int64_t u, float alpha)
{
    const struct terms total = sum_up(own);
    double *report = own->lessons->report + ACTOR_CRITIC_REPORTED * u, rows = (double)own->lessons->rows;
    report[0] = total.critic_loss * (own->settings.soft ? 0.5 : 1) / rows;
    report[1] = total.value / (rows * own->settings.critics);
    report[3] = alpha;
}

static void finish_actor(const struct actor_critic *own, float rate, float deviation)
{
    const struct terms total = sum_up(own);
    const double rows = (double)own->lessons->rows;
    own->lessons->told[0] = total.actor_loss / rows, own->lessons->told[1] = -total.logprob / rows;
    if (own->settings.learned) learn_alpha(own, (float)(total.logprob / rows), rate, deviation);
}

typedef void pass_rows(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
);

/* Do this member's share of rows. */
static void share_rows(const struct actor_critic *own, pass_rows *pass, int member, int64_t u, float alpha)
{
    const int64_t tiles = (own->lessons->rows + TILE_ROWS - 1) / TILE_ROWS, size = own->team.size;
    int64_t first = tiles * member / size * TILE_ROWS, last = tiles * (member + 1) / size * TILE_ROWS;
    if (last > own->lessons->rows) last = own->lessons->rows;
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
    const struct lessons *lessons = own->lessons;
    const int64_t rows = lessons->rows;
    const int observed = own->observed;
    struct team *team = &own->team;
    for (int64_t u = 0, moved = 0; u < lessons->updates; u++) {
        const int64_t number = lessons->before + u + 1;
        const float alpha = alpha_of(own), tau = number % settings->target_every ? 0 : settings->tau;
        share_rows(own, pass_critics, member, u, alpha);
        step_by_tape(
            &own->critics_tape, &own->critics, team, member, own->input, observed + own->actions, rows,
            &settings->adam, lessons->rates[u], lessons->deviations[u], tau
        );
        if (member == 0) report_critics(own, u, alpha);
        if (number % settings->actor_every == 0) {
            const float rate = lessons->actor_rates[moved], deviation = lessons->actor_deviations[moved];
            meet(team, member);
            share_rows(own, pass_actor, member, u, alpha);
            step_by_tape(
                &own->actor_tape, &own->actor, team, member, lessons->observation + u * rows * observed, observed,
                rows, &settings->adam, rate, deviation, settings->soft ? 0 : tau
            );
            if (member == 0) finish_actor(own, rate, deviation);
            moved++;
        } else if (!settings->soft && tau != 0) approach_share(&own->actor, team, member, tau);
        double *report = lessons->report + ACTOR_CRITIC_REPORTED * u;
        if (member == 0) report[2] = lessons->told[0], report[4] = lessons->told[1];
        if (!stay(team, member)) break;
    }
}

static int update_actor_critic(struct actor_critic *own, const struct lessons *lessons)
{
    const int64_t tiles = (lessons->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int most = own->settings.threads < lessons->threads ? own->settings.threads : lessons->threads;
    if (open_rows_of(own, lessons->rows)) return -1;
    own->lessons = lessons;
    run_team(&own->team, most < tiles ? most : (int)tiles, learn_from_replay, own);
    return 0;
}

static const struct actor_critic_set own_actor_critic = {
    open_actor_critic, close_actor_critic, load_actor_critic, save_actor_critic, update_actor_critic,
};

#endif
