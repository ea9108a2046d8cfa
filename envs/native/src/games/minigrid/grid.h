/* MiniGrid environments (Chevalier-Boisvert et al. 2023, arXiv:2306.13831), bit-identical to minigrid 3.2.0: a map of
 * cells, an agent with a 7 x 7 view ahead of it, and level generation with NumPy's generator. */

#pragma once

#include <stdint.h>

#include "runtime/native.h"

#define MAX_SIDE 25 /* cells */
#define VIEW 7      /* side of the agent's view, cells */
#define MARGIN (VIEW - 1) /* walls around a map, so that views stay within the array */
#define MAX_CELLS ((MAX_SIDE + 2 * MARGIN) * (MAX_SIDE + MARGIN) + MARGIN)
#define MAX_BALLS (MAX_SIDE / 2 + 1) /* moving obstacles */

/* MiniGrid's indices of colours and door states; and the colours sorted by name. */
enum { RED, GREEN, BLUE, PURPLE, YELLOW, GREY, COLOURS };
enum { OPEN, CLOSED, LOCKED, DOOR_STATES };
extern const uint8_t colour_named[COLOURS];

/* Codes of a cell's content. A box is empty or contains a key. */
enum {
    NOTHING, WALL, GOAL, LAVA, DOORS,
    KEYS = DOORS + COLOURS * DOOR_STATES,
    BALLS = KEYS + COLOURS,
    BOXES = BALLS + COLOURS,
    CODES = BOXES + COLOURS * (1 + COLOURS),
};
static inline uint8_t door_of(int colour, int state) { return (uint8_t)(DOORS + colour * DOOR_STATES + state); }
static inline uint8_t box_of(int colour, int key) /* key -1: empty */
{
    return (uint8_t)(BOXES + colour * (1 + COLOURS) + 1 + key);
}
static inline int is_door(int code) { return code >= DOORS && code < KEYS; }
static inline int is_open(int code) { return is_door(code) && (code - DOORS) % DOOR_STATES == OPEN; }

enum grid_map {
    EMPTY_MAP, DOOR_KEY, FOUR_ROOMS, LAVA_GAP, CROSSING, DYNAMIC_OBSTACLES, MEMORY, MULTI_ROOM, UNLOCK, UNLOCK_PICKUP,
    BLOCKED_UNLOCK_PICKUP, KEY_CORRIDOR, OBSTRUCTED_MAZE, MAPS,
};

/* Settings of level generation; each map reads some of them. envs/native/minigrid.py has the same fields. */
struct grid_settings {
    int32_t map, width, height, max_steps, see_through_walls;
    int32_t start_x, start_y, start_direction; /* start_x -1: random */
    int32_t room_size, rows, columns;          /* of a grid of rooms */
    int32_t fewest, most; /* rooms; or `most`: number of crossings or obstacles */
    int32_t walls;             /* crossings are walls instead of lava */
    int32_t random_length;     /* of the corridor */
    int32_t key_in_box, blocked; /* of mazes */
};

/* One environment. Row y of the map begins at cells[(y + MARGIN) * (width + MARGIN) + MARGIN]: the margin on the right
 * of one row is the one on the left of the next. */
struct grid {
    int32_t steps;
    uint8_t x, y, direction, carried; /* 0 right, 1 down, 2 left, 3 up; a code */
    uint8_t target[2][2]; /* position of the door; or positions of success and failure */
    uint8_t mission;      /* code of the object to pick up */
    uint8_t ball[MAX_BALLS][2];
    uint8_t cells[MAX_CELLS];
};

static inline int stride_of(const struct grid_settings *settings) { return settings->width + MARGIN; }
static inline uint8_t *cell_at(struct grid *grid, const struct grid_settings *settings, int x, int y)
{
    return grid->cells + (y + MARGIN) * stride_of(settings) + MARGIN + x;
}

/* A map under construction. */
struct level {
    struct grid *grid;
    const struct grid_settings *settings;
    struct generator *generator;
    int x, y, direction; /* of the agent; -1: not placed yet */
};

static inline int between(const struct level *s, int low, int high)
{
    return (int)draw_integer(s->generator, low, high);
}
static inline uint8_t *at(const struct level *s, int x, int y) { return cell_at(s->grid, s->settings, x, y); }

void across(const struct level *s, int x, int y, int length, uint8_t code); /* draw lines */
void down(const struct level *s, int x, int y, int length, uint8_t code);
void frame(const struct level *s, int x, int y, int width, int height);     /* draw walls */
/* Place an object on a random free cell of a rectangle by rejection sampling, giving up after `tries` + 1 attempts (0:
 * never); with `apart` not next to the agent. Return whether it was placed. */
int place(
    const struct level *s, uint8_t code, int left, int top, int width, int height, int apart, int tries, int *x, int *y
);
void place_agent(struct level *s, int left, int top, int width, int height, int tries); /* with a random direction */

void draw_grid(struct grid *grid, const struct grid_settings *settings, struct generator *generator);
void draw_rooms(struct level *s); /* maps with a grid of rooms, from UNLOCK on */
void draw_multi_room(struct level *s);

#define GRID_ROW 160 /* bytes of an observation: the direction in the first 8, then the image [7, 7, 3] */
