/* Maps made of rooms: a grid of equal rooms, or a chain of random ones. */

#include <string.h>

#include "grid.h"

#define MAX_ROOMS ((MAX_SIDE / 2) * (MAX_SIDE / 2)) /* sides of at least 3 cells, with shared walls */
#define TRIES 1000

/* Arrays are indexed by side: right, down, left, up. */
struct room {
    int x, y;       /* upper left corner */
    int door[4][2]; /* position of a possible door */
    uint8_t beside[4], joined[4], locked; /* whether there is a neighbour; whether the wall is open or has a door */
};

struct house {
    struct level *s;
    struct room room[MAX_ROOMS]; /* row by row */
};

static struct room *room_at(struct house *house, int i, int j) { return house->room + j * house->s->settings->columns + i; }

static int colour(const struct level *s) { return colour_named[between(s, 0, COLOURS)]; }

static void lay_out(struct house *house)
{
    struct level *s = house->s;
    const int size = s->settings->room_size, rows = s->settings->rows, columns = s->settings->columns;
    for (int j = 0; j < rows; j++)
        for (int i = 0; i < columns; i++) {
            *room_at(house, i, j) = (struct room){.x = i * (size - 1), .y = j * (size - 1)};
            frame(s, i * (size - 1), j * (size - 1), size, size);
        }
    for (int j = 0; j < rows; j++)
        for (int i = 0; i < columns; i++) {
            struct room *room = room_at(house, i, j);
            const int right = room->x + size - 1, bottom = room->y + size - 1;
            const uint8_t beside[4] = {i < columns - 1, j < rows - 1, i > 0, j > 0};
            memcpy(room->beside, beside, sizeof beside);
            if (beside[0]) room->door[0][0] = right, room->door[0][1] = between(s, room->y + 1, bottom);
            if (beside[1]) room->door[1][0] = between(s, room->x + 1, right), room->door[1][1] = bottom;
            if (beside[2]) memcpy(room->door[2], room_at(house, i - 1, j)->door[0], sizeof *room->door);
            if (beside[3]) memcpy(room->door[3], room_at(house, i, j - 1)->door[1], sizeof *room->door);
        }
    s->x = columns / 2 * (size - 1) + size / 2, s->y = rows / 2 * (size - 1) + size / 2, s->direction = 0;
}

static struct room *neighbour(struct house *house, int i, int j, int side)
{
    return room_at(house, i + (side == 0) - (side == 2), j + (side == 1) - (side == 3));
}

static void join(struct house *house, int i, int j, int side)
{
    room_at(house, i, j)->joined[side] = 1;
    neighbour(house, i, j, side)->joined[(side + 2) % 4] = 1;
}

static const int *add_door(struct house *house, int i, int j, int side, int colour, int locked)
{
    struct room *room = room_at(house, i, j);
    room->locked = (uint8_t)locked;
    *at(house->s, room->door[side][0], room->door[side][1]) = door_of(colour, locked ? LOCKED : CLOSED);
    join(house, i, j, side);
    return room->door[side];
}

static void remove_wall(struct house *house, int i, int j, int side)
{
    const struct room *room = room_at(house, i, j);
    const int size = house->s->settings->room_size, far = size - 1;
    if (side % 2) across(house->s, room->x + 1, room->y + (side == 1 ? far : 0), size - 2, NOTHING);
    else down(house->s, room->x + (side == 0 ? far : 0), room->y + 1, size - 2, NOTHING);
    join(house, i, j, side);
}

static void put_in(struct house *house, int i, int j, int code)
{
    const struct room *room = room_at(house, i, j);
    const int size = house->s->settings->room_size;
    int x, y;
    place(house->s, (uint8_t)code, room->x, room->y, size, size, 1, TRIES, &x, &y);
}

/* Place the agent in a room, not facing an object. */
static void put_agent(struct house *house, int i, int j)
{
    static const int8_t ahead[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    const struct room *room = room_at(house, i, j);
    struct level *s = house->s;
    uint8_t front;
    do {
        place_agent(s, room->x, room->y, s->settings->room_size, s->settings->room_size, TRIES);
        front = *at(s, s->x + ahead[s->direction][0], s->y + ahead[s->direction][1]);
    } while (front != NOTHING && front != WALL);
}

/* Count the rooms reachable from room (i, j) through doors, locked or not. */
static int count_reached(struct house *house, int i, int j)
{
    const int columns = house->s->settings->columns;
    int waiting[MAX_ROOMS], many = 0, done = 0;
    uint8_t seen[MAX_ROOMS] = {0};
    waiting[many++] = j * columns + i, seen[j * columns + i] = 1;
    while (done < many) {
        const int room = waiting[done++];
        for (int side = 0; side < 4; side++) {
            if (!house->room[room].joined[side]) continue;
            const int next = (int)(neighbour(house, room % columns, room / columns, side) - house->room);
            if (!seen[next]) waiting[many++] = next, seen[next] = 1;
        }
    }
    return many;
}

static void connect_all(struct house *house)
{
    const struct level *s = house->s;
    const int rows = s->settings->rows, columns = s->settings->columns, step = s->settings->room_size - 1;
    const int i = s->x / step, j = s->y / step;
    for (int tried = 0; tried <= 5000 && count_reached(house, i, j) < rows * columns; tried++) {
        const int column = between(s, 0, columns), row = between(s, 0, rows), side = between(s, 0, 4);
        const struct room *room = room_at(house, column, row);
        if (!room->beside[side] || room->joined[side]) continue;
        if (room->locked || neighbour(house, column, row, side)->locked) continue;
        add_door(house, column, row, side, colour(s), 0);
    }
}

static void draw_unlock(struct house *house)
{
    struct level *s = house->s;
    if (s->settings->map != UNLOCK) {
        s->grid->mission = box_of(colour(s), -1);
        put_in(house, 1, 0, s->grid->mission);
    }
    const int key = colour(s), *door = add_door(house, 0, 0, 0, key, 1);
    s->grid->target[0][0] = (uint8_t)door[0], s->grid->target[0][1] = (uint8_t)door[1];
    if (s->settings->map == BLOCKED_UNLOCK_PICKUP) *at(s, door[0] - 1, door[1]) = (uint8_t)(BALLS + colour(s));
    put_in(house, 0, 0, KEYS + key);
    put_agent(house, 0, 0);
}

static void draw_key_corridor(struct house *house)
{
    struct level *s = house->s;
    const int rows = s->settings->rows;
    for (int j = 1; j < rows; j++) remove_wall(house, 1, j, 3);
    const int behind = between(s, 0, rows), key = colour(s);
    add_door(house, 2, behind, 2, key, 1);
    s->grid->mission = (uint8_t)(BALLS + colour(s));
    put_in(house, 2, behind, s->grid->mission);
    put_in(house, 0, between(s, 0, rows), KEYS + key);
    put_agent(house, 1, rows / 2);
    connect_all(house);
}

/* Remove a random item. */
static int take_any(const struct level *s, uint8_t *items, int *count)
{
    const int k = between(s, 0, *count), item = items[k];
    memmove(items + k, items + k + 1, (size_t)(--*count - k));
    return item;
}

static void draw_maze(struct house *house)
{
    struct level *s = house->s;
    uint8_t left[COLOURS];
    int count = COLOURS;
    memcpy(left, colour_named, sizeof left);
    const int key = take_any(s, left, &count);
    while (count) take_any(s, left, &count); /* as minigrid, which shuffles all colours */
    s->grid->mission = BALLS + BLUE;
    const int *door = add_door(house, 0, 0, 0, key, 1);
    if (s->settings->blocked) *at(s, door[0] - 1, door[1]) = BALLS + GREEN;
    put_in(house, 0, 0, s->settings->key_in_box ? box_of(GREY, key) : KEYS + key);
    put_in(house, 1, 0, s->grid->mission);
    put_agent(house, 0, 0);
}

void draw_rooms(struct level *s)
{
    struct house house;
    house.s = s;
    lay_out(&house);
    if (s->settings->map == KEY_CORRIDOR) draw_key_corridor(&house);
    else if (s->settings->map == OBSTRUCTED_MAZE) draw_maze(&house);
    else draw_unlock(&house);
}

#define MAX_LINKS 8 /* rooms in a chain */

struct link {
    int x, y, width, height, door[2]; /* door: entrance */
};

struct chain {
    const struct level *s;
    struct link link[MAX_LINKS];
    int count;
};

/* Try to place a room with an entrance in one wall, then the rest of the chain; return whether it was placed. */
static int add_link(struct chain *chain, int left, int entry, int door_x, int door_y)
{
    const struct level *s = chain->s;
    const int width = between(s, 4, s->settings->room_size + 1), height = between(s, 4, s->settings->room_size + 1);
    int x = door_x, y = door_y;
    if (chain->count) {
        if (entry == 0) x = door_x - width + 1;
        if (entry == 1) y = door_y - height + 1;
        if (entry % 2) x = between(s, door_x - width + 2, door_x);
        else y = between(s, door_y - height + 2, door_y);
    }
    if (x < 0 || y < 0 || x + width > s->settings->width || y + height >= s->settings->height) return 0;
    for (int k = 0; k < chain->count - 1; k++) {
        const struct link *other = chain->link + k;
        if (!(x + width < other->x || other->x + other->width <= x || y + height < other->y ||
              other->y + other->height <= y))
            return 0;
    }
    chain->link[chain->count++] = (struct link){x, y, width, height, {door_x, door_y}};
    if (left == 1) return 1;
    for (int tried = 0; tried < 8; tried++) {
        int wall = between(s, 0, 3), out_x = x, out_y = y;
        wall += wall >= entry; /* any but the entrance */
        if (wall % 2) out_x += between(s, 1, width - 1);
        else out_y += between(s, 1, height - 1);
        if (wall == 0) out_x += width - 1;
        if (wall == 1) out_y += height - 1;
        if (add_link(chain, left - 1, (wall + 2) % 4, out_x, out_y)) break;
    }
    return 1;
}

void draw_multi_room(struct level *s)
{
    const struct grid_settings *settings = s->settings;
    struct chain longest = {.s = s};
    const int count = between(s, settings->fewest, settings->most + 1);
    int before = COLOURS, x, y; /* colour of the last door, sorted by name */
    while (longest.count < count) {
        struct chain chain = {.s = s};
        const int door_x = between(s, 0, settings->width - 2), door_y = between(s, 0, settings->width - 2);
        add_link(&chain, count, 2, door_x, door_y);
        if (chain.count > longest.count) longest = chain;
    }
    for (int k = 0; k < longest.count; k++) {
        const struct link *room = longest.link + k;
        frame(s, room->x, room->y, room->width, room->height);
        if (!k) continue;
        int name = between(s, 0, before < COLOURS ? COLOURS - 1 : COLOURS);
        name += name >= before;
        *at(s, room->door[0], room->door[1]) = door_of(colour_named[name], CLOSED);
        before = name;
    }
    const struct link *first = longest.link, *last = longest.link + longest.count - 1;
    place_agent(s, first->x, first->y, first->width, first->height, 0);
    place(s, GOAL, last->x, last->y, last->width, last->height, 0, 0, &x, &y);
}
