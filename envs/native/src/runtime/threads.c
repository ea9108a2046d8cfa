/* Thread pool of a vector; idle threads spin for a moment, then sleep. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "vector.h"

#define SPINS 2000         /* iterations of some nanoseconds before a thread sleeps */
#define CHUNKS_PER_THREAD 8 /* for load balancing, as some groups take longer than others */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

struct thread_pool {
    int wanted;    /* threads, including the caller */
    int started;   /* threads, excluding the caller */
    pid_t process; /* that started the threads; a fork has none of them */
    pthread_t *threads;
    pthread_mutex_t mutex;
    pthread_cond_t called, done;
    /* The current call. */
    const struct vector *vector;
    group_fn *function;
    const void *job;
    int chunk;
    atomic_int next; /* first group not yet taken */
    /* Changed only under the mutex. */
    atomic_uint number; /* of the call */
    atomic_int busy;    /* started threads at work; those that wake too late are not waited for */
    int open, leave;    /* whether threads may join the call; whether they must exit */
};

static void take_chunks(struct thread_pool *pool)
{
    int count = pool->vector->num_groups;
    for (;;) {
        int first = atomic_fetch_add(&pool->next, pool->chunk);
        if (first >= count) return;
        int last = count - first < pool->chunk ? count : first + pool->chunk;
        pool->function(pool->vector, pool->job, first, last);
    }
}

static void *serve(void *argument)
{
    struct thread_pool *pool = argument;
    unsigned seen = 0;
    pthread_mutex_lock(&pool->mutex);
    while (!pool->leave) {
        if (pool->open && pool->number != seen) {
            pool->busy++;
            pthread_mutex_unlock(&pool->mutex);
            take_chunks(pool);
            pthread_mutex_lock(&pool->mutex);
            if (--pool->busy == 0) pthread_cond_signal(&pool->done);
        }
        seen = pool->number;
        pthread_mutex_unlock(&pool->mutex);
        for (int spin = 0; spin < SPINS && pool->number == seen; spin++) RELAX();
        pthread_mutex_lock(&pool->mutex);
        while (pool->number == seen) pthread_cond_wait(&pool->called, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* Wake all threads, to join a call or to exit. */
static void call(struct thread_pool *pool, int open)
{
    pthread_mutex_lock(&pool->mutex);
    pool->open = open, pool->leave = !open;
    pool->number++;
    pthread_cond_broadcast(&pool->called);
    pthread_mutex_unlock(&pool->mutex);
}

struct thread_pool *open_thread_pool(int threads)
{
    struct thread_pool *pool = calloc(1, sizeof *pool);
    if (pool && !(pool->threads = calloc(threads, sizeof *pool->threads))) {
        free(pool);
        return NULL;
    }
    if (pool) pool->wanted = threads;
    return pool;
}

/* Start threads; continue with fewer if some cannot be created. */
static void begin(struct thread_pool *pool)
{
    sigset_t all, before;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->called, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->process = getpid();
    pool->started = 0;
    pool->open = 0;
    pool->number = 0;
    pool->busy = 0;
    sigfillset(&all); /* signals go to the interpreter's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < pool->wanted - 1 &&
           !pthread_create(&pool->threads[pool->started], NULL, serve, pool))
        pool->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void close_thread_pool(struct thread_pool *pool)
{
    if (pool->process == getpid()) {
        call(pool, 0);
        for (int k = 0; k < pool->started; k++) pthread_join(pool->threads[k], NULL);
        pthread_mutex_destroy(&pool->mutex);
        pthread_cond_destroy(&pool->called);
        pthread_cond_destroy(&pool->done);
    }
    free(pool->threads);
    free(pool);
}

void share_groups(const struct vector *vector, group_fn *function, const void *job)
{
    struct thread_pool *pool = vector->pool;
    if (!pool) {
        function(vector, job, 0, vector->num_groups);
        return;
    }
    if (pool->process != getpid()) begin(pool);
    int shares = pool->wanted * CHUNKS_PER_THREAD;
    pool->vector = vector, pool->function = function, pool->job = job;
    pool->chunk = (vector->num_groups + shares - 1) / shares;
    pool->next = 0;
    call(pool, 1);
    take_chunks(pool);
    for (int spin = 0; spin < SPINS && pool->busy; spin++) RELAX();
    pthread_mutex_lock(&pool->mutex);
    pool->open = 0;
    while (pool->busy) pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
