/* Adversaries that hunt prey among obstacles, bit-identical to envs/tasks/tag.py. */

#include "particles.h"
#include "games/multiagent_game.h"

#define TAG_EACH 8 /* maximum of each kind */
#define TAG_MOVING (2 * TAG_EACH)
#define TAG_BODIES (3 * TAG_EACH)
#define TAG_NUMBERS (4 + 2 * (TAG_BODIES - 1) + 2 * TAG_EACH) /* maximum of an adversary's observation */

/* The fields of `TagRules` in envs/tasks/tag.py. */
struct tag_settings {
    int32_t prey, hunters, obstacles, max_cycles;
};

struct tag {
    struct point place[TAG_BODIES], speed[TAG_MOVING]; /* hunters, prey, obstacles */
    int64_t steps;
};

#define REACH 0.9
#define CAUGHT 10.0
#define MAX_COST 10.0

struct body_kind {
    double radius, force, top;
};

static const struct body_kind hunter = {0.075, 3, 1}, prey = {0.05, 4, 1.3}, obstacle = {0.2, 0, 0};
static const struct point ways[8] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};

static int moving_of(const struct tag_settings *settings) { return settings->hunters + settings->prey; }

static const struct body_kind *kind_of(const struct tag_settings *settings, int body)
{
    return body < settings->hunters ? &hunter : body < moving_of(settings) ? &prey : &obstacle;
}

static int count_tag(const void *settings) { return moving_of(settings); }

/* Bytes of an adversary's observation; prey have fewer, as their own speed is not repeated. */
static size_t width_tag(const void *memory)
{
    const struct tag_settings *settings = memory;
    return (4 + 2 * (moving_of(settings) + settings->obstacles - 1) + 2 * settings->prey) * sizeof(float);
}

/* The observation of prey is shorter than a row; the rest stays zero. */
static void see(const struct tag *world, const struct tag_settings *settings, unsigned char *rows)
{
    const int moving = moving_of(settings), bodies = moving + settings->obstacles;
    const size_t width = width_tag(settings);
    for (int k = 0; k < moving; k++) {
        const struct point here = world->place[k], speed = world->speed[k];
        float seen[TAG_NUMBERS] = {(float)speed.x, (float)speed.y, (float)here.x, (float)here.y};
        int at = 4;
        for (int i = 0; i < bodies; i++) {
            const int other = i < settings->obstacles ? moving + i : i - settings->obstacles;
            if (other == k) continue;
            seen[at++] = (float)(world->place[other].x - here.x);
            seen[at++] = (float)(world->place[other].y - here.y);
        }
        for (int other = settings->hunters; other < moving; other++) {
            if (other == k) continue;
            seen[at++] = (float)world->speed[other].x;
            seen[at++] = (float)world->speed[other].y;
        }
        memcpy(rows + k * width, seen, at * sizeof(float));
    }
}

/* Penalty of prey for leaving the arena. */
static double cost(double x)
{
    if (x < 0) x = -x;
    if (x < 0.9) return 0;
    if (x < 1.0) return (x - 0.9) * 10.0;
    const double above = 2.0 * x - 2.0, loss = exponential(above < MAX_EXPONENT ? above : MAX_EXPONENT);
    return loss < MAX_COST ? loss : MAX_COST;
}

static void start_tag(struct tag *world, const void *memory, struct generator *generator, const struct agent_rows *rows)
{
    const struct tag_settings *settings = memory;
    const int moving = moving_of(settings), bodies = moving + settings->obstacles;
    memset(world, 0, sizeof *world);
    for (int k = 0; k < bodies; k++) world->place[k] = draw_point(generator, k < moving ? 1 : REACH);
    memset(rows->alive, 1, moving);
    memset(rows->acts, 1, moving);
    see(world, settings, rows->observation);
}

static void step_tag(
    struct tag *world, const void *memory, struct generator *generator, const int64_t *choice,
    const struct agent_rows *rows
)
{
    const struct tag_settings *settings = memory;
    (void)generator;
    const int hunters = settings->hunters, moving = moving_of(settings), bodies = moving + settings->obstacles;
    struct point force[TAG_MOVING];
    double radius[TAG_BODIES];
    for (int k = 0; k < bodies; k++) radius[k] = kind_of(settings, k)->radius;
    for (int k = 0; k < moving; k++) {
        const struct point way = ways[choice[k] & 7];
        const double strength = kind_of(settings, k)->force;
        force[k] = (struct point){way.x * strength, way.y * strength};
    }
    push_apart(force, world->place, radius, moving, bodies);
    for (int k = 0; k < moving; k++) move(world->place + k, world->speed + k, force[k], kind_of(settings, k)->top);
    const int last = ++world->steps >= settings->max_cycles;
    int all = 0;
    for (int k = hunters; k < moving; k++) {
        int by = 0;
        for (int i = 0; i < hunters; i++) by += distance(world->place[i], world->place[k]) < radius[i] + radius[k];
        rows->reward[k] = -CAUGHT * by - cost(world->place[k].x) - cost(world->place[k].y);
        all += by;
    }
    for (int k = 0; k < hunters; k++) rows->reward[k] = CAUGHT * all;
    memset(rows->truncated, last, moving);
    see(world, settings, rows->observation);
}

MULTIAGENT_GAME(tag, .choices = 5, .row_bytes = TAG_NUMBERS * sizeof(float), .saved_bytes = sizeof(struct tag))
