/* Steps of snakes on one field, in the order that envs/tasks/snake.py has. */

#include "snake.h"

#include <string.h>

enum { FREE, FOOD, WALL, BODY, HEAD }; /* what is in a cell, and seen of it */

static int stride_of(const struct snake_settings *settings) { return settings->width + SIGHT; }

static int cell_of(const struct snake_settings *settings, int x, int y)
{
    return (y + SIGHT) * stride_of(settings) + SIGHT + x;
}

static uint16_t *part(struct snake *snake, int k) { return snake->body + (snake->tail + k) % MOST_LENGTH; }

static int head_of(struct snake *snake) { return *part(snake, snake->length - 1); }

/* A free cell, drawn until there is one. */
static int draw_free(const struct snakes *field, const struct snake_settings *settings, struct generator *generator)
{
    for (;;) {
        const int drawn = (int)draw_integer(generator, 0, settings->width * settings->height);
        const int cell = cell_of(settings, drawn % settings->width, drawn / settings->width);
        if (field->cells[cell] == FREE) return cell;
    }
}

static void give_birth(
    struct snakes *field, struct snake *snake, const struct snake_settings *settings, struct generator *generator
)
{
    const int cell = draw_free(field, settings, generator);
    *snake = (struct snake){.body = {(uint16_t)cell}, .length = 1};
    field->cells[cell] = HEAD;
}

static void put_food(struct snakes *field, const struct snake_settings *settings, struct generator *generator)
{
    field->cells[draw_free(field, settings, generator)] = FOOD;
}

static void see(const struct snakes *field, const struct snake_settings *settings, int cell, unsigned char *row)
{
    const int stride = stride_of(settings);
    const uint8_t *corner = field->cells + cell - SIGHT * stride - SIGHT;
    for (int y = 0; y < SEEN; y++) memcpy(row + y * SEEN, corner + y * stride, SEEN);
}

static void clear(struct snakes *field, const struct snake_settings *settings)
{
    memset(field->cells, WALL, SNAKE_CELLS);
    for (int y = 0; y < settings->height; y++) memset(field->cells + cell_of(settings, 0, y), FREE, settings->width);
}

static void step_field(
    struct snakes *field, const struct snake_settings *settings, struct generator *generator, const int64_t *choice,
    unsigned char *observation, double *reward, uint8_t *terminated, uint8_t *truncated, uint8_t *alive, uint8_t *acts
)
{
    const int ways[4] = {-stride_of(settings), 1, stride_of(settings), -1}, snakes = settings->snakes;
    int next[MOST_SNAKES], from[MOST_SNAKES], eats[MOST_SNAKES], dies[MOST_SNAKES], eaten = 0;
    for (int k = 0; k < snakes; k++) {
        struct snake *snake = field->snake + k;
        if (!snake->length) continue;
        from[k] = head_of(snake), next[k] = from[k] + ways[choice[k] & 3];
        eats[k] = field->cells[next[k]] == FOOD;
        if (eats[k] && snake->length < settings->longest) continue;
        field->cells[*part(snake, 0)] = FREE;
        snake->tail = (snake->tail + 1) % MOST_LENGTH, snake->length--;
    }
    /* A snake of one cell has none now, and is told from the dead by `away`. */
    for (int k = 0; k < snakes; k++) {
        if (field->snake[k].away) continue;
        dies[k] = field->cells[next[k]] >= WALL;
        for (int other = 0; other < snakes; other++)
            dies[k] |= other != k && !field->snake[other].away && next[other] == next[k];
    }
    for (int k = 0; k < snakes; k++) {
        struct snake *snake = field->snake + k;
        if (snake->away) continue;
        if (dies[k]) {
            for (int i = 0; i < snake->length; i++) field->cells[*part(snake, i)] = FREE;
            snake->length = 0;
            terminated[k] = 1, reward[k] = -1;
            continue;
        }
        if (snake->length) field->cells[from[k]] = BODY;
        snake->length++;
        *part(snake, snake->length - 1) = (uint16_t)next[k];
        field->cells[next[k]] = HEAD;
        eaten += eats[k], reward[k] = eats[k];
    }
    const int last = ++field->steps >= settings->max_steps;
    for (int k = 0; k < snakes; k++) {
        struct snake *snake = field->snake + k;
        if (terminated[k]) snake->away = (uint16_t)settings->absence;
        else if (snake->away && !--snake->away) {
            if (last) snake->away = 1;
            else give_birth(field, snake, settings, generator), alive[k] = acts[k] = 1;
        } else if (last && !snake->away) truncated[k] = 1;
    }
    for (; eaten; eaten--) put_food(field, settings, generator);
    for (int k = 0; k < snakes; k++) {
        struct snake *snake = field->snake + k;
        if (snake->length) see(field, settings, head_of(snake), observation + k * SEEN * SEEN);
        else if (terminated[k]) see(field, settings, from[k], observation + k * SEEN * SEEN);
    }
}

int count_snakes(const void *settings) { return ((const struct snake_settings *)settings)->snakes; }

void start_snakes(
    void *group, const void *memory, struct generator *generators, unsigned mask, const struct seat_rows *rows
)
{
    const struct snake_settings *settings = memory;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        struct snakes *field = (struct snakes *)group + lane;
        const size_t first = (size_t)lane * settings->snakes;
        memset(field, 0, sizeof *field);
        clear(field, settings);
        for (int k = 0; k < settings->snakes; k++) give_birth(field, field->snake + k, settings, generators + lane);
        for (int k = 0; k < settings->food; k++) put_food(field, settings, generators + lane);
        for (int k = 0; k < settings->snakes; k++) {
            rows->alive[first + k] = rows->acts[first + k] = 1;
            see(field, settings, head_of(field->snake + k), rows->observation + (first + k) * SEEN * SEEN);
        }
    }
}

void step_snakes(
    void *group, const void *memory, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
)
{
    const struct snake_settings *settings = memory;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        const size_t first = (size_t)lane * settings->snakes;
        step_field(
            (struct snakes *)group + lane, settings, generators + lane, choice + first,
            rows->observation + first * SEEN * SEEN, rows->reward + first, rows->terminated + first,
            rows->truncated + first, rows->alive + first, rows->acts + first
        );
    }
}

void save_snakes(const void *group, int lane, void *saved)
{
    memcpy(saved, (const struct snakes *)group + lane, sizeof(struct snakes));
}

/* What was not saved by this code is brought to a field that there could be: bodies in free cells, and food where there is
 * to be some. */
void load_snakes(void *group, const void *memory, int lane, const void *saved)
{
    const struct snake_settings *settings = memory;
    struct snakes *field = (struct snakes *)group + lane;
    struct snakes was;
    memcpy(&was, saved, sizeof was);
    *field = was;
    clear(field, settings);
    field->steps &= INT32_MAX >> 1;
    for (int k = 0; k < MOST_SNAKES; k++) {
        struct snake *snake = field->snake + k;
        if (k >= settings->snakes) *snake = (struct snake){0};
        snake->tail %= MOST_LENGTH;
        if (snake->length > settings->longest) snake->length = (uint8_t)settings->longest;
        for (int i = 0; i < snake->length; i++) {
            const int cell = *part(snake, i);
            if (cell >= SNAKE_CELLS || field->cells[cell] != FREE) {
                snake->length = (uint8_t)i;
                break;
            }
            field->cells[cell] = BODY;
        }
        if (snake->length) field->cells[head_of(snake)] = HEAD, snake->away = 0;
        else if (k < settings->snakes && !snake->away) snake->away = 1;
    }
    int food = 0;
    for (int y = 0; y < settings->height; y++)
        for (int x = 0; x < settings->width; x++) {
            const int cell = cell_of(settings, x, y);
            if (was.cells[cell] != FOOD || field->cells[cell] != FREE || food == settings->food) continue;
            field->cells[cell] = FOOD, food++;
        }
}
