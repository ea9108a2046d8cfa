/* Steps and observations of MiniGrid environments. */

#include "games/game.h"
#include "grid.h"

enum { LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE }; /* and 6: done */

/* Type, colour and state of each code in the lower three bytes; the fourth says whether it blocks the view. */
#define HIDES 0x1000000u
#define SHOWN(kind, colour, state) ((uint32_t)(kind) | (uint32_t)(colour) << 8 | (uint32_t)(state) << 16)
#define OF_DOOR(c) SHOWN(4, c, OPEN), SHOWN(4, c, CLOSED) | HIDES, SHOWN(4, c, LOCKED) | HIDES
#define OF_BOX(c) \
    SHOWN(7, c, 0), SHOWN(7, c, 0), SHOWN(7, c, 0), SHOWN(7, c, 0), SHOWN(7, c, 0), SHOWN(7, c, 0), SHOWN(7, c, 0)
#define OF_ALL(kind) \
    SHOWN(kind, 0, 0), SHOWN(kind, 1, 0), SHOWN(kind, 2, 0), SHOWN(kind, 3, 0), SHOWN(kind, 4, 0), SHOWN(kind, 5, 0)
static const uint32_t shown[CODES] = {
    SHOWN(1, 0, 0), SHOWN(2, GREY, 0) | HIDES, SHOWN(8, GREEN, 0), SHOWN(9, RED, 0),
    OF_DOOR(0), OF_DOOR(1), OF_DOOR(2), OF_DOOR(3), OF_DOOR(4), OF_DOOR(5),
    OF_ALL(5), OF_ALL(6), OF_BOX(0), OF_BOX(1), OF_BOX(2), OF_BOX(3), OF_BOX(4), OF_BOX(5),
};

/* Return the visible cells of a row of the view: visibility spreads right, then left, through cells that do not block
 * it. *beyond gets the cells reached in the next row. Bit i is column i; runs are filled by doubling (Kogge and Stone
 * 1973). */
static inline unsigned light(unsigned lit, unsigned clear, unsigned *beyond)
{
    enum { ALL = (1 << VIEW) - 1, LAST = 1 << (VIEW - 1) };
    unsigned right = lit & clear, way = clear;
    right |= way & right << 1, way &= way << 1;
    right |= way & right << 2, way &= way << 2;
    right |= way & right << 4;
    lit |= right << 1 & ALL;
    unsigned left = lit & clear;
    way = clear;
    left |= way & left >> 1, way &= way >> 1;
    left |= way & left >> 2, way &= way >> 2;
    left |= way & left >> 4;
    lit |= left >> 1;
    right &= ~LAST, left &= ~1u;
    *beyond = right | right << 1 | left | left >> 1;
    return lit;
}

static void observe(struct grid *grid, const void *memory, unsigned char *row)
{
    const struct grid_settings *settings = memory;
    const int below = stride_of(settings), direction = grid->direction;
    const int ahead = direction == 0 ? 1 : direction == 1 ? below : direction == 2 ? -1 : -below;
    const int right = direction == 0 ? below : direction == 1 ? -1 : direction == 2 ? -below : 1;
    const uint8_t *corner = cell_at(grid, settings, grid->x, grid->y) + (VIEW - 1) * ahead - VIEW / 2 * right;
    unsigned char *image = row + sizeof(int64_t);
    memset(row, 0, sizeof(int64_t));
    row[0] = (unsigned char)direction;
    /* The fourth byte of a cell is overwritten by the next cell. */
    if (settings->see_through_walls) {
        for (int i = 0; i < VIEW; i++)
            for (int j = 0; j < VIEW; j++, image += 3) memcpy(image, &shown[corner[i * right - j * ahead]], sizeof *shown);
    } else {
        uint32_t cells[VIEW][VIEW];
        unsigned lit[VIEW], reached = 1u << VIEW / 2;
        for (int j = VIEW - 1; j >= 0; j--) {
            unsigned hidden = 0;
            for (int i = 0; i < VIEW; i++) {
                cells[i][j] = shown[corner[i * right - j * ahead]];
                hidden |= cells[i][j] >> 24 << i;
            }
            lit[j] = light(reached, ~hidden & ((1 << VIEW) - 1), &reached);
        }
        for (int i = 0; i < VIEW; i++)
            for (int j = 0; j < VIEW; j++, image += 3) {
                const uint32_t cell = cells[i][j] & -(lit[j] >> i & 1u);
                memcpy(image, &cell, sizeof cell);
            }
    }
    memset(image, 0, (size_t)(row + GRID_ROW - image));
    unsigned char *own = row + sizeof(int64_t) + 3 * (VIEW / 2 * VIEW + VIEW - 1);
    memcpy(own, &shown[grid->carried], 3);
}

static int stands_on(const struct grid *grid, int k) { return grid->x == grid->target[k][0] && grid->y == grid->target[k][1]; }

static int door_is_open(struct grid *grid, const struct grid_settings *settings)
{
    return is_open(*cell_at(grid, settings, grid->target[0][0], grid->target[0][1]));
}

static uint8_t toggled(uint8_t code, uint8_t carried)
{
    if (code >= BOXES) {
        const int key = (code - BOXES) % (1 + COLOURS);
        return (uint8_t)(key ? KEYS + key - 1 : NOTHING);
    }
    if (!is_door(code)) return code;
    const int colour = (code - DOORS) / DOOR_STATES, state = (code - DOORS) % DOOR_STATES;
    if (state == LOCKED && carried != KEYS + colour) return code;
    return door_of(colour, state == OPEN ? CLOSED : OPEN);
}

static void roll_balls(struct grid *grid, const struct grid_settings *settings, struct generator *generator)
{
    const struct level s = {.grid = grid, .settings = settings, .generator = generator, .x = grid->x, .y = grid->y};
    for (int k = 0; k < settings->most; k++) {
        uint8_t *ball = grid->ball[k];
        int x, y;
        if (!place(&s, BALLS + BLUE, ball[0] - 1, ball[1] - 1, 3, 3, 0, 100, &x, &y)) continue;
        *at(&s, ball[0], ball[1]) = NOTHING;
        ball[0] = (uint8_t)x, ball[1] = (uint8_t)y;
    }
}

/* Step; return whether the episode ended. */
static int step_grid(struct grid *grid, const void *memory, struct generator *generator, int action, double *reward)
{
    const struct grid_settings *settings = memory;
    static const int8_t ahead[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    const int map = settings->map;
    const int x = grid->x + ahead[grid->direction][0], y = grid->y + ahead[grid->direction][1];
    const int inside = x >= 0 && y >= 0 && x < settings->width && y < settings->height;
    uint8_t *front = cell_at(grid, settings, x, y); /* a wall of the margin, if the map has none */
    const int blocked = *front != NOTHING && *front != GOAL;
    int ended = 0, won = 0;
    grid->steps++;
    if (map == DYNAMIC_OBSTACLES) roll_balls(grid, settings, generator);
    if (map == MEMORY && action == PICKUP) action = TOGGLE;
    if (action == LEFT) grid->direction = (grid->direction + 3) & 3;
    if (action == RIGHT) grid->direction = (grid->direction + 1) & 3;
    if (action == FORWARD && inside) {
        won = *front == GOAL, ended = won || *front == LAVA;
        if (*front <= LAVA ? *front != WALL : is_open(*front)) grid->x = (uint8_t)x, grid->y = (uint8_t)y;
    }
    if (action == PICKUP && *front >= KEYS && !grid->carried) {
        grid->carried = *front, *front = NOTHING;
    } else if (action == DROP && *front == NOTHING && grid->carried) {
        *front = grid->carried, grid->carried = NOTHING;
    } else if (action == TOGGLE)
        *front = toggled(*front, grid->carried);
    if (action == PICKUP && grid->mission && grid->carried == grid->mission) won = ended = 1;
    if (action == TOGGLE && map == UNLOCK && door_is_open(grid, settings)) won = ended = 1;
    if (map == MEMORY && stands_on(grid, 0)) won = ended = 1;
    if (map == MEMORY && stands_on(grid, 1)) won = 0, ended = 1;
    *reward = won ? 1 - 0.9 * ((double)grid->steps / settings->max_steps) : 0;
    if (map == DYNAMIC_OBSTACLES && action == FORWARD && blocked) *reward = -1, ended = 1;
    return ended;
}

static void begin_grid(struct grid *grid, const void *settings, struct generator *generator)
{
    draw_grid(grid, settings, generator);
}

/* Dynamic-Obstacles has three actions: turn left, turn right, forward. */
GAME_OF(minigrid, struct grid, begin_grid, step_grid, observe, .choices = 7, .row_bytes = GRID_ROW)
GAME_OF(minigrid_moves, struct grid, begin_grid, step_grid, observe, .choices = 3, .row_bytes = GRID_ROW)
