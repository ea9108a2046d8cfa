/* Level generation: lines, objects on free cells, and maps of one or a few rooms. */

#include <string.h>

#include "grid.h"

const uint8_t colour_named[COLOURS] = {BLUE, GREEN, GREY, PURPLE, RED, YELLOW};

void across(const struct level *s, int x, int y, int length, uint8_t code) { memset(at(s, x, y), code, (size_t)length); }

void down(const struct level *s, int x, int y, int length, uint8_t code)
{
    for (int k = 0; k < length; k++) *at(s, x, y + k) = code;
}

void frame(const struct level *s, int x, int y, int width, int height)
{
    across(s, x, y, width, WALL);
    across(s, x, y + height - 1, width, WALL);
    down(s, x, y, height, WALL);
    down(s, x + width - 1, y, height, WALL);
}

static int distance(int a, int b) { return a < b ? b - a : a - b; }

int place(
    const struct level *s, uint8_t code, int left, int top, int width, int height, int apart, int tries, int *x, int *y
)
{
    left = left < 0 ? 0 : left, top = top < 0 ? 0 : top;
    const int right = left + width < s->settings->width ? left + width : s->settings->width;
    const int bottom = top + height < s->settings->height ? top + height : s->settings->height;
    for (int tried = 0; !tries || tried <= tries; tried++) {
        *x = between(s, left, right), *y = between(s, top, bottom);
        if (*at(s, *x, *y) != NOTHING || (*x == s->x && *y == s->y)) continue;
        if (apart && distance(*x, s->x) + distance(*y, s->y) < 2) continue;
        *at(s, *x, *y) = code;
        return 1;
    }
    return 0;
}

void place_agent(struct level *s, int left, int top, int width, int height, int tries)
{
    int x, y;
    s->x = s->y = -1;
    place(s, NOTHING, left, top, width, height, 0, tries, &x, &y);
    s->x = x, s->y = y;
    s->direction = between(s, 0, 4);
}

/* Place the agent at the configured or a random position. */
static void start_agent(struct level *s)
{
    const struct grid_settings *settings = s->settings;
    if (settings->start_x < 0) place_agent(s, 0, 0, settings->width, settings->height, 0);
    else s->x = settings->start_x, s->y = settings->start_y, s->direction = settings->start_direction;
}

static void put_goal(const struct level *s) { *at(s, s->settings->width - 2, s->settings->height - 2) = GOAL; }

static void draw_empty(struct level *s)
{
    put_goal(s);
    start_agent(s);
}

static void draw_door_key(struct level *s)
{
    const int width = s->settings->width, height = s->settings->height;
    int x, y;
    put_goal(s);
    const int split = between(s, 2, width - 2);
    down(s, split, 0, height, WALL);
    place_agent(s, 0, 0, split, height, 0);
    *at(s, split, between(s, 1, height - 2)) = door_of(YELLOW, LOCKED);
    place(s, KEYS + YELLOW, 0, 0, split, height, 0, 0, &x, &y);
}

static void draw_four_rooms(struct level *s)
{
    const int width = s->settings->width / 2, height = s->settings->height / 2; /* of a room */
    int x, y;
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++) {
            const int left = i * width, top = j * height, right = left + width, bottom = top + height;
            if (!i) {
                down(s, right, top, height, WALL);
                *at(s, right, between(s, top + 1, bottom)) = NOTHING;
            }
            if (!j) {
                across(s, left, bottom, width, WALL);
                *at(s, between(s, left + 1, right), bottom) = NOTHING;
            }
        }
    place_agent(s, 0, 0, s->settings->width, s->settings->height, 0);
    place(s, GOAL, 0, 0, s->settings->width, s->settings->height, 0, 0, &x, &y);
}

static void draw_lava_gap(struct level *s)
{
    const int width = s->settings->width, height = s->settings->height;
    s->x = s->y = 1, s->direction = 0;
    put_goal(s);
    const int x = between(s, 2, width - 2), y = between(s, 1, height - 1);
    down(s, x, 1, height - 2, LAVA);
    *at(s, x, y) = NOTHING;
}

/* Shuffle as Generator.shuffle does. */
static void shuffle(const struct level *s, int *items, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)draw_masked(s->generator, (uint32_t)i), item = items[i];
        items[i] = items[j], items[j] = item;
    }
}

/* Rivers in even rows and columns, and one path through all of them from the upper left to the lower right. */
static void draw_crossing(struct level *s)
{
    const int width = s->settings->width, height = s->settings->height;
    const uint8_t code = s->settings->walls ? WALL : LAVA;
    int rivers[2 * MAX_SIDE], path[2 * MAX_SIDE], count = 0, columns = 0, steps = 0;
    /* Vertical rivers by x, horizontal ones by y, both with the borders of the map. */
    int downward[MAX_SIDE + 2] = {0}, sideways[MAX_SIDE + 2] = {0}, downs = 0, sides = 0;
    s->x = s->y = 1, s->direction = 0;
    put_goal(s);
    for (int x = 2; x < height - 2; x += 2) rivers[count++] = columns++;
    for (int y = 2; y < width - 2; y += 2) rivers[count] = count, count++;
    shuffle(s, rivers, count);
    const int chosen = s->settings->most < count ? s->settings->most : count;
    for (int river = 0; river < count; river++) /* in ascending order */
        for (int k = 0; k < chosen; k++) {
            if (rivers[k] != river) continue;
            if (river < columns) downward[++downs] = 2 + 2 * river;
            else sideways[++sides] = 2 + 2 * (river - columns);
        }
    for (int k = 1; k <= sides; k++) across(s, 1, sideways[k], width - 2, code);
    for (int k = 1; k <= downs; k++) down(s, downward[k], 1, height - 2, code);
    for (int k = 0; k < downs; k++) path[steps++] = 1;
    for (int k = 0; k < sides; k++) path[steps++] = 0;
    shuffle(s, path, steps);
    downward[downs + 1] = height - 1, sideways[sides + 1] = width - 1;
    for (int k = 0, i = 0, j = 0; k < steps; k++) {
        if (path[k]) {
            const int y = between(s, sideways[j] + 1, sideways[j + 1]);
            *at(s, downward[++i], y) = NOTHING;
        } else {
            const int x = between(s, downward[i] + 1, downward[i + 1]);
            *at(s, x, sideways[++j]) = NOTHING;
        }
    }
}

static void draw_dynamic_obstacles(struct level *s)
{
    draw_empty(s);
    for (int k = 0; k < s->settings->most; k++) {
        int x, y;
        place(s, BALLS + BLUE, 0, 0, s->settings->width, s->settings->height, 0, 100, &x, &y);
        s->grid->ball[k][0] = (uint8_t)x, s->grid->ball[k][1] = (uint8_t)y;
    }
}

static void draw_memory(struct level *s)
{
    const int width = s->settings->width, height = s->settings->height, middle = height / 2;
    const int end = s->settings->random_length ? between(s, 4, width - 2) : width - 3; /* of the corridor */
    across(s, 1, middle - 2, 4, WALL);
    across(s, 1, middle + 2, 4, WALL);
    *at(s, 4, middle - 1) = *at(s, 4, middle + 1) = WALL;
    for (int x = 5; x < end; x++) *at(s, x, middle - 1) = *at(s, x, middle + 1) = WALL;
    for (int y = 0; y < height; y++) {
        if (y != middle) *at(s, end, y) = WALL;
        *at(s, end + 2, y) = WALL;
    }
    s->x = between(s, 1, end + 1), s->y = middle, s->direction = 0;
    const int seen = between(s, 0, 2), above = 1 - between(s, 0, 2); /* 0: a key; 1: a ball */
    *at(s, 1, middle - 1) = (uint8_t)(seen ? BALLS + GREEN : KEYS + GREEN);
    *at(s, end + 1, middle - 2) = (uint8_t)(above ? BALLS + GREEN : KEYS + GREEN);
    *at(s, end + 1, middle + 2) = (uint8_t)(above ? KEYS + GREEN : BALLS + GREEN);
    const int well = seen == above ? -1 : 1;
    s->grid->target[0][0] = s->grid->target[1][0] = (uint8_t)(end + 1);
    s->grid->target[0][1] = (uint8_t)(middle + well), s->grid->target[1][1] = (uint8_t)(middle - well);
}

typedef void draw_map(struct level *s);

static draw_map *const maps[MAPS] = {
    draw_empty, draw_door_key, draw_four_rooms, draw_lava_gap, draw_crossing, draw_dynamic_obstacles, draw_memory,
    draw_multi_room, draw_rooms, draw_rooms, draw_rooms, draw_rooms, draw_rooms,
};

void draw_grid(struct grid *grid, const struct grid_settings *settings, struct generator *generator)
{
    struct level s = {.grid = grid, .settings = settings, .generator = generator, .x = -1, .y = -1};
    const int row = stride_of(settings);
    memset(grid->cells, WALL, (size_t)((settings->height + 2 * MARGIN) * row + MARGIN));
    for (int y = 0; y < settings->height; y++) across(&s, 0, y, settings->width, NOTHING);
    if (settings->map < MULTI_ROOM) frame(&s, 0, 0, settings->width, settings->height);
    grid->steps = 0, grid->carried = grid->mission = NOTHING;
    maps[settings->map](&s);
    grid->x = (uint8_t)s.x, grid->y = (uint8_t)s.y, grid->direction = (uint8_t)s.direction;
}
