/* Multi-agent Snake, bit-identical to envs/tasks/snake.py. */

#include "games/multiagent_game.h"

#define SIGHT 5                 /* view radius, cells */
#define SEEN (2 * SIGHT + 1)    /* side of the view */
#define SNAKE_SIDE 32           /* maximum side of the field */
#define MAX_SNAKES 16
#define MAX_LENGTH 32
#define SNAKE_CELLS ((SNAKE_SIDE + 2 * SIGHT) * (SNAKE_SIDE + SIGHT) + SIGHT)

/* The fields of `Rules` in envs/tasks/snake.py. */
struct snake_settings {
    int32_t snakes, width, height, food, longest, absence, max_steps;
};

struct body {
    uint16_t body[MAX_LENGTH]; /* indices into `cells`: a ring buffer from the tail, at `tail`, to the head */
    uint8_t tail, length;      /* length 0: dead */
    uint16_t away;             /* steps until it respawns */
};

/* Row y of the field starts at cells[(y + SIGHT) * (width + SIGHT) + SIGHT]; neighbouring rows share a wall. */
struct snake {
    int32_t steps;
    struct body snake[MAX_SNAKES];
    uint8_t cells[SNAKE_CELLS];
};

enum { FREE, FOOD, WALL, BODY, HEAD }; /* contents of a cell, as observed */

static int stride_of(const struct snake_settings *settings) { return settings->width + SIGHT; }

static int cell_of(const struct snake_settings *settings, int x, int y)
{
    return (y + SIGHT) * stride_of(settings) + SIGHT + x;
}

static uint16_t *part(struct body *snake, int k) { return snake->body + (snake->tail + k) % MAX_LENGTH; }

static int head_of(struct body *snake) { return *part(snake, snake->length - 1); }

/* Return a random free cell (rejection sampling). */
static int draw_free(const struct snake *field, const struct snake_settings *settings, struct generator *generator)
{
    for (;;) {
        const int drawn = (int)draw_integer(generator, 0, settings->width * settings->height);
        const int cell = cell_of(settings, drawn % settings->width, drawn / settings->width);
        if (field->cells[cell] == FREE) return cell;
    }
}

static void give_birth(
    struct snake *field, struct body *snake, const struct snake_settings *settings, struct generator *generator
)
{
    const int cell = draw_free(field, settings, generator);
    *snake = (struct body){.body = {(uint16_t)cell}, .length = 1};
    field->cells[cell] = HEAD;
}

static void put_food(struct snake *field, const struct snake_settings *settings, struct generator *generator)
{
    field->cells[draw_free(field, settings, generator)] = FOOD;
}

static void see(const struct snake *field, const struct snake_settings *settings, int cell, unsigned char *row)
{
    const int stride = stride_of(settings);
    const uint8_t *corner = field->cells + cell - SIGHT * stride - SIGHT;
    for (int y = 0; y < SEEN; y++) memcpy(row + y * SEEN, corner + y * stride, SEEN);
}

static void clear(struct snake *field, const struct snake_settings *settings)
{
    memset(field->cells, WALL, SNAKE_CELLS);
    for (int y = 0; y < settings->height; y++) memset(field->cells + cell_of(settings, 0, y), FREE, settings->width);
}

static int count_snake(const void *settings) { return ((const struct snake_settings *)settings)->snakes; }
static size_t width_snake(const void *settings) { return (void)settings, SEEN * SEEN; }

static void start_snake(
    struct snake *field, const void *memory, struct generator *generator, const struct agent_rows *rows
)
{
    const struct snake_settings *settings = memory;
    memset(field, 0, sizeof *field);
    clear(field, settings);
    for (int k = 0; k < settings->snakes; k++) give_birth(field, field->snake + k, settings, generator);
    for (int k = 0; k < settings->food; k++) put_food(field, settings, generator);
    for (int k = 0; k < settings->snakes; k++) {
        rows->alive[k] = rows->acts[k] = 1;
        see(field, settings, head_of(field->snake + k), rows->observation + k * SEEN * SEEN);
    }
}

static void step_snake(
    struct snake *field, const void *memory, struct generator *generator, const int64_t *choice,
    const struct agent_rows *rows
)
{
    const struct snake_settings *settings = memory;
    uint8_t *terminated = rows->terminated;
    const int ways[4] = {-stride_of(settings), 1, stride_of(settings), -1}, snakes = settings->snakes;
    int next[MAX_SNAKES], from[MAX_SNAKES], eats[MAX_SNAKES], dies[MAX_SNAKES], eaten = 0;
    for (int k = 0; k < snakes; k++) {
        struct body *snake = field->snake + k;
        if (!snake->length) continue;
        from[k] = head_of(snake), next[k] = from[k] + ways[choice[k] & 3];
        eats[k] = field->cells[next[k]] == FOOD;
        if (eats[k] && snake->length < settings->longest) continue;
        field->cells[*part(snake, 0)] = FREE;
        snake->tail = (snake->tail + 1) % MAX_LENGTH, snake->length--;
    }
    /* A snake of one cell has length 0 here; `away` distinguishes it from dead ones. */
    for (int k = 0; k < snakes; k++) {
        if (field->snake[k].away) continue;
        dies[k] = field->cells[next[k]] >= WALL;
        for (int other = 0; other < snakes; other++)
            dies[k] |= other != k && !field->snake[other].away && next[other] == next[k];
    }
    for (int k = 0; k < snakes; k++) {
        struct body *snake = field->snake + k;
        if (snake->away) continue;
        if (dies[k]) {
            for (int i = 0; i < snake->length; i++) field->cells[*part(snake, i)] = FREE;
            snake->length = 0;
            terminated[k] = 1, rows->reward[k] = -1;
            continue;
        }
        if (snake->length) field->cells[from[k]] = BODY;
        snake->length++;
        *part(snake, snake->length - 1) = (uint16_t)next[k];
        field->cells[next[k]] = HEAD;
        eaten += eats[k], rows->reward[k] = eats[k];
    }
    const int last = ++field->steps >= settings->max_steps;
    for (int k = 0; k < snakes; k++) {
        struct body *snake = field->snake + k;
        if (terminated[k]) snake->away = (uint16_t)settings->absence;
        else if (snake->away && !--snake->away) {
            if (last) snake->away = 1;
            else give_birth(field, snake, settings, generator), rows->alive[k] = rows->acts[k] = 1;
        } else if (last && !snake->away) rows->truncated[k] = 1;
    }
    for (; eaten; eaten--) put_food(field, settings, generator);
    for (int k = 0; k < snakes; k++) {
        struct body *snake = field->snake + k;
        if (snake->length) see(field, settings, head_of(snake), rows->observation + k * SEEN * SEEN);
        else if (terminated[k]) see(field, settings, from[k], rows->observation + k * SEEN * SEEN);
    }
}

MULTIAGENT_GAME(snake, .choices = 4, .row_bytes = SEEN * SEEN, .saved_bytes = sizeof(struct snake))
