/* What a set of instructions computes of recorded choices in worlds: see fingerprint.c. */

#include <stdlib.h>
#include <string.h>

#include "recorded.h"
#include "vector.h"

#define WORLDS MAX_LANES /* whole groups of every width */
#define MOST_SEATS 4
#define ROWS (WORLDS * MOST_SEATS)
#define MOST_ROW 121 /* bytes of what a seat sees */
#define KEY 14
#define STEPS 60

struct buffers {
    unsigned char observation[ROWS * MOST_ROW], final[ROWS * MOST_ROW];
    int64_t choice[ROWS];
    double reward[ROWS], running_return[ROWS], final_return[ROWS];
    uint8_t terminated[ROWS], truncated[ROWS], alive[ROWS], acts[ROWS], over[WORLDS];
    int64_t running_length[ROWS], final_length[ROWS], episode[WORLDS];
};

uint64_t play_recorded_worlds(const struct task *task)
{
    const int64_t first[WORLDS] = {0};
    struct inputs inputs = {KEY};
    struct buffers *b = calloc(1, sizeof *b);
    struct vector *vector = vector_open(task, WORLDS, task->example, 40, 1, 1);
    void *saved = vector ? malloc(vector_saved_bytes(vector)) : NULL;
    uint64_t hashed = 0;
    if (b && saved) {
        const struct rows rows = {
            b->observation, b->final, b->choice, b->reward, b->terminated, b->truncated, b->running_return,
            b->running_length, b->final_return, b->final_length, b->episode, b->alive, b->acts, b->over,
        };
        hashed = 1;
        vector_begin(vector, KEY, first, &rows);
        for (int t = 0; t < STEPS; t++) {
            for (int i = 0; i < ROWS; i++) b->choice[i] = (int64_t)(next_input(&inputs) % (uint32_t)task->choices);
            vector_step(vector, NULL, &rows);
            hashed = hash(hashed, b, sizeof *b);
        }
        vector_save(vector, saved);
        hashed = hash(hashed, saved, vector_saved_bytes(vector));
    }
    vector_close(vector);
    free(b);
    free(saved);
    return hashed;
}
