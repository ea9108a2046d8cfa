/* Threads that live for one call only, so that forks are safe. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "dense.h"

#define MAX_THREADS 64
#define SPINS 4000 /* of some nanoseconds each, before a thread yields */
#define TRIAL 32   /* rounds between checks whether the team waits more than half of the time */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

struct member {
    struct team *team;
    team_work *work;
    void *job;
    int number;
    volatile int *go; /* 0: wait; 1: work; -1: leave */
    pthread_t thread;
};

static void *serve(void *argument)
{
    struct member *member = argument;
    int go;
    while (!(go = __atomic_load_n(member->go, __ATOMIC_ACQUIRE))) sched_yield();
    if (go > 0) member->work(member->job, member->number);
    return NULL;
}

/* Return monotonic time. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void run_team(struct team *team, int threads, team_work *work, void *job)
{
    struct member members[MAX_THREADS];
    volatile int go = 0;
    sigset_t all, before;
    int started = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    sigfillset(&all); /* the interpreter's threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < threads) {
        struct member *member = &members[started];
        *member = (struct member){team, work, job, started, &go, 0};
        if (pthread_create(&member->thread, NULL, serve, member)) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    *team = (struct team){.size = started, .since = seconds()};
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    work(job, 0);
    for (int k = 1; k < started; k++) pthread_join(members[k].thread, NULL);
}

void team_barrier(struct team *team, int member)
{
    if (team->size == 1) return;
    const double since = member ? 0 : seconds();
    int round = __atomic_load_n(&team->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->waiting, 1, __ATOMIC_ACQ_REL) == team->size) {
        __atomic_store_n(&team->waiting, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int spin = 0; __atomic_load_n(&team->round, __ATOMIC_ACQUIRE) == round; spin++) {
        if (spin < SPINS) RELAX();
        else sched_yield();
    }
    if (!member) team->waited += seconds() - since;
}

int team_continue(struct team *team, int member)
{
    if (member == 0 && team->size > 1 && ++team->tried == TRIAL) {
        const double now = seconds();
        team->alone = team->waited > 0.5 * (now - team->since);
        team->since = now, team->waited = 0, team->tried = 0;
    }
    team_barrier(team, member);
    if (!team->alone) return 1;
    if (member == 0) team->size = 1;
    return member == 0;
}
