/* Threads that play whole episodes; player.h plays them, compiled once per instruction set. */

#include <pthread.h>

#include "simd/sets.h"

#define MAX_THREADS 256

struct shared {
    const struct rollout *rollout;
    play_fn *play;
    int64_t next; /* next episode to start */
    int failed;
};

static void *play_share(void *argument)
{
    struct shared *shared = argument;
    if (shared->play(shared->rollout, &shared->next)) __atomic_store_n(&shared->failed, 1, __ATOMIC_RELAXED);
    return NULL;
}

int play_episodes(const struct rollout *rollout)
{
    struct shared shared = {.rollout = rollout, .play = set_of(rollout->task)->play};
    int64_t wanted = rollout->threads < rollout->episodes ? rollout->threads : rollout->episodes;
    pthread_t threads[MAX_THREADS];
    int started = 0;
    while (started < wanted - 1 && started < MAX_THREADS &&
           !pthread_create(&threads[started], NULL, play_share, &shared))
        started++;
    play_share(&shared);
    for (int k = 0; k < started; k++) pthread_join(threads[k], NULL);
    return shared.failed ? -1 : 0;
}
