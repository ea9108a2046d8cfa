/* Threads that share the groups of a vector's calls. They wait a moment for the next call, then sleep. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "vector.h"

#define SPINS 2000         /* of some nanoseconds each, before a thread sleeps */
#define CHUNKS_A_THREAD 8  /* groups are handed out in so many shares, as some groups take longer than others */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

struct crew {
    int wanted;    /* threads, the caller's among them */
    int started;   /* of our own */
    pid_t process; /* that they run in: a fork has none of them */
    pthread_t *threads;
    pthread_mutex_t mutex;
    pthread_cond_t called, done;
    /* The call at work. */
    const struct vector *vector;
    part *part;
    const void *job;
    int chunk;
    atomic_int next; /* the first group that nobody has taken */
    /* Changed under the mutex only. */
    atomic_uint number; /* of the call */
    atomic_int busy;    /* threads of our own that take part in it: who wakes too late is not waited for */
    int open, leave;    /* whether they still may; whether they are to end */
};

static void take_chunks(struct crew *crew)
{
    int count = crew->vector->num_groups;
    for (;;) {
        int first = atomic_fetch_add(&crew->next, crew->chunk);
        if (first >= count) return;
        int last = count - first < crew->chunk ? count : first + crew->chunk;
        crew->part(crew->vector, crew->job, first, last);
    }
}

static void *serve(void *argument)
{
    struct crew *crew = argument;
    unsigned seen = 0;
    pthread_mutex_lock(&crew->mutex);
    while (!crew->leave) {
        if (crew->open && crew->number != seen) {
            crew->busy++;
            pthread_mutex_unlock(&crew->mutex);
            take_chunks(crew);
            pthread_mutex_lock(&crew->mutex);
            if (--crew->busy == 0) pthread_cond_signal(&crew->done);
        }
        seen = crew->number;
        pthread_mutex_unlock(&crew->mutex);
        for (int spin = 0; spin < SPINS && crew->number == seen; spin++) RELAX();
        pthread_mutex_lock(&crew->mutex);
        while (crew->number == seen) pthread_cond_wait(&crew->called, &crew->mutex);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* Wake all threads: to take part, or to end. */
static void call(struct crew *crew, int open)
{
    pthread_mutex_lock(&crew->mutex);
    crew->open = open, crew->leave = !open;
    crew->number++;
    pthread_cond_broadcast(&crew->called);
    pthread_mutex_unlock(&crew->mutex);
}

struct crew *open_crew(int threads)
{
    struct crew *crew = calloc(1, sizeof *crew);
    if (crew && !(crew->threads = calloc(threads, sizeof *crew->threads))) {
        free(crew);
        return NULL;
    }
    if (crew) crew->wanted = threads;
    return crew;
}

/* Threads that could not be had are done without. */
static void begin(struct crew *crew)
{
    sigset_t all, before;
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->called, NULL);
    pthread_cond_init(&crew->done, NULL);
    crew->process = getpid();
    crew->started = 0;
    crew->open = 0;
    crew->number = 0;
    crew->busy = 0;
    sigfillset(&all); /* signals are for the threads of the interpreter */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->started < crew->wanted - 1 &&
           !pthread_create(&crew->threads[crew->started], NULL, serve, crew))
        crew->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void close_crew(struct crew *crew)
{
    if (crew->process == getpid()) {
        call(crew, 0);
        for (int k = 0; k < crew->started; k++) pthread_join(crew->threads[k], NULL);
        pthread_mutex_destroy(&crew->mutex);
        pthread_cond_destroy(&crew->called);
        pthread_cond_destroy(&crew->done);
    }
    free(crew->threads);
    free(crew);
}

void share_groups(const struct vector *vector, part *part, const void *job)
{
    struct crew *crew = vector->crew;
    if (!crew) {
        part(vector, job, 0, vector->num_groups);
        return;
    }
    if (crew->process != getpid()) begin(crew);
    int shares = crew->wanted * CHUNKS_A_THREAD;
    crew->vector = vector, crew->part = part, crew->job = job;
    crew->chunk = (vector->num_groups + shares - 1) / shares;
    crew->next = 0;
    call(crew, 1);
    take_chunks(crew);
    for (int spin = 0; spin < SPINS && crew->busy; spin++) RELAX();
    pthread_mutex_lock(&crew->mutex);
    crew->open = 0;
    while (crew->busy) pthread_cond_wait(&crew->done, &crew->mutex);
    pthread_mutex_unlock(&crew->mutex);
}
