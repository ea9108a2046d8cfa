/* The sanity suite's tasks (envs/sanity, envs/tasks/recall.py), but for those that draw noise or take structured actions:
 * of each where an episode begins, what an action does, and what is seen. */

#ifndef PADDOCK_SANITY_H
#define PADDOCK_SANITY_H

#include "games/lane_game.h"
#include "sanity_settings.h"

/* One environment of any of them. */
struct lesson {
    int32_t step, count; /* how many steps there were; what is counted in them */
    uint32_t bits;       /* what was said, or is to be said */
    int32_t number;      /* what was shown, or is owed */
};

#define LESSON(task) struct lesson *task, const void *memory, struct generator *generator
#define PLAYED(task) struct lesson *task, const void *memory, int choice, double *reward
#define SHOWN(task) const struct lesson *task, const void *memory, float *seen
#define SETTINGS const struct sanity_settings *settings = memory; (void)settings

INLINE void forget(struct lesson *lesson) { *lesson = (struct lesson){0}; }
INLINE int bit_of(uint32_t bits, int k) { return bits >> (k & 31) & 1; }

INLINE void begin_plainly(LESSON(lesson))
{
    (void)memory, (void)generator;
    forget(lesson);
}

INLINE void show_one(SHOWN(lesson))
{
    (void)lesson, (void)memory;
    seen[0] = 1;
}

INLINE void mend_lesson(struct lesson *lesson, const void *memory)
{
    SETTINGS;
    lesson->step &= INT32_MAX >> 1, lesson->count &= INT32_MAX >> 1, lesson->number &= 7;
    if (settings->rewards && lesson->step > settings->steps) lesson->step = settings->steps;
    if (settings->rewards && lesson->count > lesson->step) lesson->count = lesson->step;
}

/* Bandit without noise: one arm pays. */
INLINE int play_bandit(PLAYED(lesson))
{
    SETTINGS;
    (void)lesson;
    *reward = (choice == settings->arm) + settings->offset;
    return 1;
}

/* Password: its bits, one a step. */
#define PASSWORD_BITS 5
INLINE int play_password(PLAYED(lesson))
{
    SETTINGS;
    lesson->bits |= (uint32_t)choice << (lesson->step & 31);
    const int over = ++lesson->step >= PASSWORD_BITS;
    *reward = over && lesson->bits == settings->password;
    return over;
}

INLINE void show_password(SHOWN(lesson))
{
    (void)memory;
    for (int k = 0; k < PASSWORD_BITS; k++) seen[k] = k < lesson->step ? (float)bit_of(lesson->bits, k) : -1;
}

/* Blend: so many moves, of which so many are to be 0. */
INLINE int play_blend(PLAYED(lesson))
{
    SETTINGS;
    lesson->count += !choice;
    const int over = ++lesson->step >= settings->steps;
    *reward = over && lesson->count == settings->zeros;
    return over;
}

/* PufferLib's Stochastic: a move that brings the share of zeros to what it should be; looked up, as a division took most of
 * a step. */
INLINE int play_stochastic(PLAYED(lesson))
{
    SETTINGS;
    lesson->step += lesson->step < settings->steps, lesson->count += !choice && lesson->count < lesson->step;
    *reward = settings->rewards[2 * (lesson->step * (settings->steps + 1) + lesson->count) + (choice != 0)];
    return lesson->step == settings->steps;
}

INLINE void show_nothing(SHOWN(lesson))
{
    (void)lesson, (void)memory;
    seen[0] = 0;
}

/* Delay: what was answered in the first step pays in the last one. */
#define DELAY_NUMBERS 8
INLINE void begin_delay(LESSON(lesson))
{
    (void)memory;
    forget(lesson);
    lesson->number = (int32_t)draw_integer(generator, 0, DELAY_NUMBERS);
}

INLINE int play_delay(PLAYED(lesson))
{
    SETTINGS;
    if (!lesson->step) lesson->bits = choice == lesson->number % 2;
    const int over = lesson->step >= settings->delay;
    *reward = over && lesson->bits;
    lesson->step++;
    return over;
}

INLINE void show_delay(SHOWN(lesson))
{
    SETTINGS;
    for (int k = 0; k < DELAY_NUMBERS; k++) seen[k] = !lesson->step && k == lesson->number;
    seen[DELAY_NUMBERS] = lesson->step < settings->delay ? (float)((double)lesson->step / settings->delay) : 1;
}

/* Cutoff: leave, or stay; who stays is cut off by the vector, or with `terminates` here. */
INLINE int play_cutoff(PLAYED(lesson))
{
    SETTINGS;
    const int left = !lesson->step && !choice;
    *reward = left ? settings->leave : settings->stay;
    lesson->step++;
    return left || (settings->terminates && lesson->step == settings->steps);
}

INLINE void show_cutoff(SHOWN(lesson))
{
    (void)memory;
    seen[0] = !lesson->step;
}

/* Copy: digits are seen, and after a while said. */
INLINE void begin_digits(LESSON(lesson))
{
    SETTINGS;
    forget(lesson);
    for (int k = 0; k < settings->digits; k++) lesson->bits |= (uint32_t)draw_integer(generator, 0, 2) << k;
}

INLINE int play_copy(PLAYED(lesson))
{
    SETTINGS;
    const int asked = lesson->step - settings->digits - settings->delay;
    *reward = asked >= 0 && choice == bit_of(lesson->bits, asked) ? 1.0 / settings->digits : 0;
    return ++lesson->step >= 2 * settings->digits + settings->delay;
}

INLINE void show_copy(SHOWN(lesson))
{
    SETTINGS;
    seen[0] = lesson->step < settings->digits ? (float)(2 * bit_of(lesson->bits, lesson->step) - 1) : 0;
    seen[1] = lesson->step >= settings->digits + settings->delay;
}

/* Forget: whether there was a signal, which only the last answer says; `count` steps are left. */
INLINE void begin_forget(LESSON(lesson))
{
    SETTINGS;
    struct bits bits = bits_of(generator);
    forget(lesson);
    lesson->number = (int32_t)draw_integer(generator, 0, 2);
    const int64_t more = settings->geometric(&bits, settings->end);
    lesson->count = more < settings->steps ? 1 + (int32_t)more : settings->steps;
}

INLINE int play_forget(PLAYED(lesson))
{
    (void)memory;
    lesson->step = 1;
    const int over = --lesson->count <= 0;
    *reward = over && choice == lesson->number;
    return over;
}

INLINE void show_forget(SHOWN(lesson))
{
    (void)memory;
    seen[0] = lesson->step ? 0 : (float)lesson->number;
}

/* PufferLib's Memory: its ticks are steps and 1. */
INLINE int play_memory(PLAYED(lesson))
{
    SETTINGS;
    const int tick = lesson->step + 1, asked = tick - settings->digits - settings->delay;
    *reward = asked >= 0 ? choice == bit_of(lesson->bits, asked) : tick < settings->digits && !choice;
    lesson->step++;
    return tick + 1 >= 2 * settings->digits + settings->delay;
}

INLINE void show_memory(SHOWN(lesson))
{
    SETTINGS;
    seen[0] = lesson->step < settings->digits ? (float)bit_of(lesson->bits, lesson->step) : 0;
}

/* Recall: a cue, and a question later. */
INLINE void begin_recall(LESSON(lesson))
{
    (void)memory;
    forget(lesson);
    lesson->number = (int32_t)draw_integer(generator, 0, 2);
}

INLINE int play_recall(PLAYED(lesson))
{
    SETTINGS;
    const int asked = lesson->step > settings->delay;
    *reward = asked ? choice == (lesson->number & 1) ? 1 : -1 : 0;
    lesson->step++;
    return asked;
}

INLINE void show_recall(SHOWN(lesson))
{
    SETTINGS;
    seen[0] = lesson->step ? 0 : (float)(2 * (lesson->number & 1) - 1);
    seen[1] = lesson->step == settings->delay + 1;
}

#define LESSON_TASK(task, begin, show, shown, choices)                                                                 \
    LANE_GAME(sanity_##task, struct lesson, begin, play_##task, show, mend_lesson, shown, choices)

LESSON_TASK(bandit, begin_plainly, show_one, 1, 10)
LESSON_TASK(password, begin_plainly, show_password, PASSWORD_BITS, 2)
LESSON_TASK(blend, begin_plainly, show_one, 1, 2)
LESSON_TASK(stochastic, begin_plainly, show_nothing, 1, 2)
LESSON_TASK(delay, begin_delay, show_delay, DELAY_NUMBERS + 1, 2)
LESSON_TASK(cutoff, begin_plainly, show_cutoff, 1, 2)
LESSON_TASK(copy, begin_digits, show_copy, 2, 2)
LESSON_TASK(forget, begin_forget, show_forget, 1, 2)
LESSON_TASK(memory, begin_digits, show_memory, 1, 2)
LESSON_TASK(recall, begin_recall, show_recall, 2, 2)

#undef LESSON
#undef PLAYED
#undef SHOWN
#undef SETTINGS

#endif
