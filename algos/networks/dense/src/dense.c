/* What is exported: learning with the set of instructions that the caller names, which the processor has to have. */

#include <string.h>

#include "dense.h"

const struct dense_set *find_dense(const char *name)
{
    const struct dense_set *const sets[] = {baseline_dense, avx2_dense, avx512_dense};
    for (int k = 0; k < 3; k++)
        if (sets[k] && !strcmp(name, sets[k]->name)) return sets[k];
    return 0;
}

int native_abi(void) { return DENSE_ABI; }

int evaluate_dense(const char *set, const struct network *network, const struct evaluation *evaluation)
{
    return find_dense(set)->evaluate(network, evaluation);
}

int update_dense(const char *set, const struct network *network, const struct update *update)
{
    return find_dense(set)->update(network, update);
}

struct q_learner *q_open(const char *set, const struct network *network, int sparse)
{
    return find_dense(set)->q->open(network, sparse);
}

void q_close(const char *set, struct q_learner *learner) { find_dense(set)->q->close(learner); }

void q_load(const char *set, struct q_learner *learner, const struct vectors *given)
{
    find_dense(set)->q->load(learner, given);
}

void q_save(const char *set, const struct q_learner *learner, const struct vectors *onto)
{
    find_dense(set)->q->save(learner, onto);
}

int q_update(const char *set, struct q_learner *learner, const struct q_update *update)
{
    return find_dense(set)->q->update(learner, update);
}

struct actor_critic *actor_critic_open(const char *set, const struct actor_critic_settings *settings)
{
    return find_dense(set)->actor_critic->open(settings);
}

void actor_critic_close(const char *set, struct actor_critic *learner) { find_dense(set)->actor_critic->close(learner); }

void actor_critic_load(
    const char *set, struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
)
{
    find_dense(set)->actor_critic->load(learner, actor, critics);
}

void actor_critic_save(
    const char *set, const struct actor_critic *learner, const struct vectors *actor,
    const struct vectors *critics
)
{
    find_dense(set)->actor_critic->save(learner, actor, critics);
}

int actor_critic_update(const char *set, struct actor_critic *learner, const struct lessons *lessons)
{
    return find_dense(set)->actor_critic->update(learner, lessons);
}

int64_t lstm_tape(const char *set, const struct lstm *lstm) { return (int64_t)find_dense(set)->lstm_tape(lstm); }

int lstm_run(const char *set, const struct lstm *lstm, const struct lstm_gradient *gradient)
{
    return find_dense(set)->lstm(lstm, gradient);
}
