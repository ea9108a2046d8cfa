/* Steps of agents that cover landmarks, in the order that envs/tasks/spread.py has. */

#include "spread.h"

#include <string.h>

#define RADIUS 0.15
#define FORCE 5.0

static const struct point ways[8] = {{0, 0}, {-FORCE, 0}, {FORCE, 0}, {0, -FORCE}, {0, FORCE}};

/* The last numbers of a row, of those who could speak, stay the zeros that they are in a blank one. */
static void see(const struct spread *world, int agents, unsigned char *rows)
{
    for (int k = 0; k < agents; k++) {
        const struct point here = world->place[k], speed = world->speed[k];
        float seen[6 * MOST_AGENTS] = {(float)speed.x, (float)speed.y, (float)here.x, (float)here.y};
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

static void step_world(
    struct spread *world, const struct spread_settings *settings, const int64_t *choice, double *reward,
    uint8_t *truncated
)
{
    const int agents = settings->agents;
    struct point force[MOST_AGENTS];
    double radius[MOST_AGENTS], together = 0;
    for (int k = 0; k < agents; k++) force[k] = ways[choice[k] & 7], radius[k] = RADIUS;
    push_apart(force, world->place, radius, agents, agents);
    for (int k = 0; k < agents; k++) move(world->place + k, world->speed + k, force[k], NO_TOP);
    for (int i = 0; i < agents; i++) {
        double least = distance(world->place[0], world->landmark[i]);
        for (int k = 1; k < agents; k++) {
            const double other = distance(world->place[k], world->landmark[i]);
            if (other < least) least = other;
        }
        together -= least;
    }
    int met[MOST_AGENTS] = {0};
    for (int k = 0; k < agents; k++)
        for (int other = k + 1; other < agents; other++) {
            const int near = distance(world->place[k], world->place[other]) < RADIUS + RADIUS;
            met[k] += near, met[other] += near;
        }
    const int last = ++world->steps >= settings->max_cycles;
    for (int k = 0; k < agents; k++) {
        reward[k] = together * (1 - settings->local_ratio) - met[k] * settings->local_ratio;
        truncated[k] = (uint8_t)last;
    }
}

int count_spread(const void *settings) { return ((const struct spread_settings *)settings)->agents; }

size_t width_of_spread(const void *settings) { return count_spread(settings) * AGENT_BYTES; }

void start_spread(
    void *group, const void *memory, struct generator *generators, unsigned mask, const struct seat_rows *rows
)
{
    const int agents = count_spread(memory);
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        struct spread *world = (struct spread *)group + lane;
        const size_t first = (size_t)lane * agents;
        memset(world, 0, sizeof *world);
        for (int k = 0; k < agents; k++) world->place[k] = draw_point(generators + lane, 1);
        for (int k = 0; k < agents; k++) world->landmark[k] = draw_point(generators + lane, 1);
        memset(rows->alive + first, 1, agents);
        memset(rows->acts + first, 1, agents);
        see(world, agents, rows->observation + first * agents * AGENT_BYTES);
    }
}

void step_spread(
    void *group, const void *memory, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
)
{
    const struct spread_settings *settings = memory;
    const int agents = settings->agents;
    (void)generators;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        struct spread *world = (struct spread *)group + lane;
        const size_t first = (size_t)lane * agents;
        step_world(world, settings, choice + first, rows->reward + first, rows->truncated + first);
        see(world, agents, rows->observation + first * agents * AGENT_BYTES);
    }
}

void save_spread(const void *group, int lane, void *saved)
{
    memcpy(saved, (const struct spread *)group + lane, sizeof(struct spread));
}

void load_spread(void *group, const void *memory, int lane, const void *saved)
{
    struct spread *world = (struct spread *)group + lane;
    (void)memory;
    memcpy(world, saved, sizeof *world);
    world->steps &= INT32_MAX;
    for (int k = 0; k < MOST_AGENTS; k++) {
        world->place[k] = mended(world->place[k]), world->speed[k] = mended(world->speed[k]);
        world->landmark[k] = mended(world->landmark[k]);
    }
}
