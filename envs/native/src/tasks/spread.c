/* Agents that cover landmarks, bit-identical to envs/tasks/spread.py. */

#include "particles.h"
#include "games/multiagent_game.h"

#define SPREAD_MAX_AGENTS 16
#define AGENT_BYTES (6 * sizeof(float)) /* of an observation, per agent in the environment */

/* The fields of `SpreadRules` in envs/tasks/spread.py. */
struct spread_settings {
    int32_t agents;
    double local_ratio;
    int32_t max_cycles;
};

struct spread {
    struct point place[SPREAD_MAX_AGENTS], speed[SPREAD_MAX_AGENTS], landmark[SPREAD_MAX_AGENTS];
    int64_t steps;
};

#define RADIUS 0.15
#define FORCE 5.0

static const struct point ways[8] = {{0, 0}, {-FORCE, 0}, {FORCE, 0}, {0, -FORCE}, {0, FORCE}};

/* The last numbers of a row, messages in mpe2, stay zero. */
static void see(const struct spread *world, int agents, unsigned char *rows)
{
    for (int k = 0; k < agents; k++) {
        const struct point here = world->place[k], speed = world->speed[k];
        float seen[6 * SPREAD_MAX_AGENTS] = {(float)speed.x, (float)speed.y, (float)here.x, (float)here.y};
        int at = 4;
        for (int i = 0; i < agents; i++) {
            seen[at++] = (float)(world->landmark[i].x - here.x);
            seen[at++] = (float)(world->landmark[i].y - here.y);
        }
        for (int i = 0; i < agents; i++) {
            if (i == k) continue;
            seen[at++] = (float)(world->place[i].x - here.x);
            seen[at++] = (float)(world->place[i].y - here.y);
        }
        memcpy(rows + k * agents * AGENT_BYTES, seen, agents * AGENT_BYTES);
    }
}

static int count_spread(const void *settings) { return ((const struct spread_settings *)settings)->agents; }
static size_t width_spread(const void *settings) { return count_spread(settings) * AGENT_BYTES; }

static void start_spread(
    struct spread *world, const void *settings, struct generator *generator, const struct agent_rows *rows
)
{
    const int agents = count_spread(settings);
    memset(world, 0, sizeof *world);
    for (int k = 0; k < agents; k++) world->place[k] = draw_point(generator, 1);
    for (int k = 0; k < agents; k++) world->landmark[k] = draw_point(generator, 1);
    memset(rows->alive, 1, agents);
    memset(rows->acts, 1, agents);
    see(world, agents, rows->observation);
}

static void step_spread(
    struct spread *world, const void *memory, struct generator *generator, const int64_t *choice,
    const struct agent_rows *rows
)
{
    const struct spread_settings *settings = memory;
    (void)generator;
    const int agents = settings->agents;
    struct point force[SPREAD_MAX_AGENTS];
    double radius[SPREAD_MAX_AGENTS], together = 0;
    for (int k = 0; k < agents; k++) force[k] = ways[choice[k] & 7], radius[k] = RADIUS;
    push_apart(force, world->place, radius, agents, agents);
    for (int k = 0; k < agents; k++) move(world->place + k, world->speed + k, force[k]);
    for (int i = 0; i < agents; i++) {
        double least = distance(world->place[0], world->landmark[i]);
        for (int k = 1; k < agents; k++) {
            const double other = distance(world->place[k], world->landmark[i]);
            if (other < least) least = other;
        }
        together -= least;
    }
    int met[SPREAD_MAX_AGENTS] = {0};
    for (int k = 0; k < agents; k++)
        for (int other = k + 1; other < agents; other++) {
            const int near = distance(world->place[k], world->place[other]) < RADIUS + RADIUS;
            met[k] += near, met[other] += near;
        }
    const int last = ++world->steps >= settings->max_cycles;
    for (int k = 0; k < agents; k++) {
        rows->reward[k] = together * (1 - settings->local_ratio) - met[k] * settings->local_ratio;
        rows->truncated[k] = (uint8_t)last;
    }
    see(world, agents, rows->observation);
}

MULTIAGENT_GAME(spread, .choices = 5, .row_bytes = SPREAD_MAX_AGENTS * AGENT_BYTES, .saved_bytes = sizeof(struct spread))
