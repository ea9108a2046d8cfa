/* Thread pool of a vector environment; idle threads spin briefly, then sleep. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "vector.h"

#define SPINS 2000         /* iterations of a few nanoseconds each before a thread sleeps */
#define CHUNKS_PER_THREAD 8 /* for load balancing, because some groups take longer than others */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

struct thread_pool {
    int num_threads; /* including the caller */
    int num_started; /* excluding the caller */
    pid_t owner_pid; /* process that started the threads; forked children have no threads */
    pthread_t *threads;
    pthread_mutex_t mutex;
    pthread_cond_t work_ready, work_done;
    /* The current call. */
    const struct vector *vector;
    group_fn *function;
    const void *job;
    int chunk_size;        /* groups */
    atomic_int next_group; /* first group that no thread has taken yet */
    /* Modified only while holding the mutex. */
    atomic_uint call_number;
    atomic_int num_busy; /* threads that run the current call, excluding the caller */
    int accepting, stopping; /* whether threads may join the current call; whether they must exit */
};

static void run_chunks(struct thread_pool *pool)
{
    int count = pool->vector->num_groups;
    for (;;) {
        int first = atomic_fetch_add(&pool->next_group, pool->chunk_size);
        if (first >= count) return;
        int last = count - first < pool->chunk_size ? count : first + pool->chunk_size;
        pool->function(pool->vector, pool->job, first, last);
    }
}

static void *run_worker(void *argument)
{
    struct thread_pool *pool = argument;
    unsigned last_call = 0;
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        if (pool->accepting && pool->call_number != last_call) {
            pool->num_busy++;
            pthread_mutex_unlock(&pool->mutex);
            run_chunks(pool);
            pthread_mutex_lock(&pool->mutex);
            if (--pool->num_busy == 0) pthread_cond_signal(&pool->work_done);
        }
        last_call = pool->call_number;
        pthread_mutex_unlock(&pool->mutex);
        for (int spin = 0; spin < SPINS && pool->call_number == last_call; spin++) RELAX();
        pthread_mutex_lock(&pool->mutex);
        while (pool->call_number == last_call) pthread_cond_wait(&pool->work_ready, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* Wake all threads to run the current call or, if not `accepting`, to exit. */
static void wake_threads(struct thread_pool *pool, int accepting)
{
    pthread_mutex_lock(&pool->mutex);
    pool->accepting = accepting, pool->stopping = !accepting;
    pool->call_number++;
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->mutex);
}

struct thread_pool *open_thread_pool(int threads)
{
    struct thread_pool *pool = calloc(1, sizeof *pool);
    if (pool && !(pool->threads = calloc(threads, sizeof *pool->threads))) {
        free(pool);
        return NULL;
    }
    if (pool) pool->num_threads = threads;
    return pool;
}

/* Start the threads; continue with fewer if some cannot be created. */
static void start_threads(struct thread_pool *pool)
{
    sigset_t all, previous;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work_ready, NULL);
    pthread_cond_init(&pool->work_done, NULL);
    pool->owner_pid = getpid();
    pool->num_started = 0;
    pool->accepting = 0;
    pool->call_number = 0;
    pool->num_busy = 0;
    sigfillset(&all); /* deliver signals to Python's threads only */
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    while (pool->num_started < pool->num_threads - 1 &&
           !pthread_create(&pool->threads[pool->num_started], NULL, run_worker, pool))
        pool->num_started++;
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
}

void close_thread_pool(struct thread_pool *pool)
{
    if (pool->owner_pid == getpid()) {
        wake_threads(pool, 0);
        for (int k = 0; k < pool->num_started; k++) pthread_join(pool->threads[k], NULL);
        pthread_mutex_destroy(&pool->mutex);
        pthread_cond_destroy(&pool->work_ready);
        pthread_cond_destroy(&pool->work_done);
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
    if (pool->owner_pid != getpid()) start_threads(pool);
    int num_chunks = pool->num_threads * CHUNKS_PER_THREAD;
    pool->vector = vector, pool->function = function, pool->job = job;
    pool->chunk_size = (vector->num_groups + num_chunks - 1) / num_chunks;
    pool->next_group = 0;
    wake_threads(pool, 1);
    run_chunks(pool);
    for (int spin = 0; spin < SPINS && pool->num_busy; spin++) RELAX();
    pthread_mutex_lock(&pool->mutex);
    pool->accepting = 0;
    while (pool->num_busy) pthread_cond_wait(&pool->work_done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
