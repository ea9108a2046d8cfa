/* Terrain generation: Gymnasium's `BipedalWalker._generate_terrain` and `generate_ground` of envs/bipedal/ground.py, with
 * the same order of random numbers and, in double precision, of sums. */

#include <math.h>
#include <stdlib.h>

#include "ground.h"

#define SCALE 30.0 /* pixels per metre */
#define STEP (14 / SCALE)
#define HEIGHT (400 / SCALE / 4) /* of the start pad */
#define STARTPAD 20
#define GRASS 10
#define CLOUD_STEPS 20 /* points of the ground per cloud */
#define CLOUD_DRAWS 11
#define FEW_BOXES 16

/* Progress of terrain generation. */
struct builder {
    struct ground *ground;
    int at;          /* next point */
    double velocity; /* of the grass */
};

int open_ground(struct ground *ground, int length)
{
    *ground = (struct ground){.length = length};
    ground->x = malloc((size_t)length * sizeof *ground->x);
    ground->y = malloc((size_t)length * sizeof *ground->y);
    if (ground->x && ground->y) return 0;
    close_ground(ground);
    return -1;
}

void close_ground(struct ground *ground)
{
    free(ground->x);
    free(ground->y);
    free(ground->box);
    *ground = (struct ground){0};
}

static int add_box(struct ground *ground, double left, double bottom, double right, double top)
{
    if (ground->boxes == ground->capacity) {
        int32_t capacity = ground->capacity ? 2 * ground->capacity : FEW_BOXES;
        struct box *box = realloc(ground->box, (size_t)capacity * sizeof *box);
        if (!box) return -1;
        ground->box = box, ground->capacity = capacity;
    }
    float l = (float)left, b = (float)bottom, r = (float)right, t = (float)top;
    ground->box[ground->boxes++] = (struct box){{{l, b}, {r, b}, {r, t}, {l, t}}};
    return 0;
}

/* Add a box as `Terrain` of envs/bipedal passes it to Box2D: centre and half size in single precision. */
static int add_upright(struct ground *ground, double left, double bottom, double right, double top)
{
    const float x = (float)((right + left) / 2), y = (float)((top + bottom) / 2);
    const float w = (float)((right - left) / 2), h = (float)((top - bottom) / 2);
    if (add_box(ground, 0, 0, 0, 0)) return -1;
    ground->box[ground->boxes - 1] = (struct box){{{-w + x, -h + y}, {w + x, -h + y}, {w + x, h + y}, {-w + x, h + y}}};
    return 0;
}

/* Add points; those beyond the end of the course are dropped. */
static void add_points(struct builder *builder, int count, double y)
{
    struct ground *ground = builder->ground;
    for (int i = builder->at; i < builder->at + count && i < ground->length; i++) {
        ground->x[i] = (float)(i * STEP);
        ground->y[i] = (float)y;
    }
    builder->at += count;
}

/* Return the height of the next point of grass; `push` is in (-1, 1). */
static double next_height(struct builder *builder, double y, double roughness, double push)
{
    double pull = (y < HEIGHT) - (y > HEIGHT);
    builder->velocity = 0.8 * builder->velocity + 0.01 * pull + push / SCALE;
    return y + roughness * builder->velocity;
}

static void skip(struct generator *generator, int draws)
{
    for (int i = 0; i < draws; i++) draw(generator);
}

static int lay_gymnasium(struct ground *ground, int hardcore, struct generator *generator)
{
    enum { ON_GRASS, STUMP, STAIRS, PIT, STATES } state = ON_GRASS;
    struct builder builder = {.ground = ground};
    double y = HEIGHT, before = 0;
    int64_t counter = STARTPAD, steps = 0, width = 0, rise = 0;
    int first = 0, failed = 0;
    for (int i = 0; i < ground->length; i++) {
        double x = i * STEP;
        if (state == ON_GRASS && !first) {
            y = next_height(&builder, y, 1.0, i > STARTPAD ? draw_uniform(generator, -1, 1) : 0.0);
        } else if (state == PIT && first) {
            counter = draw_integer(generator, 3, 5);
            double bottom = y - 4 * STEP;
            failed |= add_box(ground, x, bottom, x + STEP, y);
            failed |= add_box(ground, x + STEP * counter, bottom, (x + STEP) + STEP * counter, y);
            counter += 2;
            before = y;
        } else if (state == PIT) {
            y = counter > 1 ? before - 4 * STEP : before;
        } else if (state == STUMP && first) {
            counter = draw_integer(generator, 1, 3);
            failed |= add_box(ground, x, y, x + counter * STEP, y + counter * STEP);
        } else if (state == STAIRS && first) {
            rise = draw(generator) > 0.5 ? 1 : -1;
            width = draw_integer(generator, 4, 5);
            steps = draw_integer(generator, 3, 5);
            before = y;
            for (int64_t s = 0; s < steps; s++)
                failed |= add_box(
                    ground, x + (s * width) * STEP, y + (-1 + s * rise) * STEP, x + ((1 + s) * width) * STEP,
                    y + (s * rise) * STEP
                );
            counter = steps * width;
        } else if (state == STAIRS) {
            double n = (double)(steps * width - counter - rise) / (double)width;
            y = before + (n * rise) * STEP;
        }
        first = 0;
        add_points(&builder, 1, y);
        if (--counter == 0) {
            counter = draw_integer(generator, GRASS / 2, GRASS);
            state = state == ON_GRASS && hardcore ? (int)draw_integer(generator, 1, STATES) : ON_GRASS;
            first = 1;
        }
    }
    return failed;
}

static double draw_real(struct generator *generator, const double interval[2])
{
    return draw_uniform(generator, interval[0], interval[1]);
}

static int draw_whole(struct generator *generator, const int32_t interval[2])
{
    return (int)draw_integer(generator, interval[0], interval[1]);
}

static int lay_stump(struct builder *builder, const struct course *course, struct generator *generator, double y)
{
    double left = builder->at * STEP;
    int width = draw_whole(generator, course->stump_width);
    double height = draw_real(generator, course->stump_height);
    double bottom = y + draw_whole(generator, course->stump_float) * STEP;
    add_points(builder, width, y);
    return add_upright(builder->ground, left, bottom, left + width * STEP, bottom + height * STEP);
}

static int lay_stairs(struct builder *builder, const struct course *course, struct generator *generator, double *y)
{
    double x = builder->at * STEP, start = *y;
    double rise = draw_real(generator, course->stair_height) * STEP;
    int upwards = draw(generator) > 0.5;
    int width = draw_whole(generator, course->stair_width);
    int steps = draw_whole(generator, course->stair_steps);
    int failed = 0;
    add_points(builder, 1, start);
    for (int step = 0; step < steps; step++) {
        double top = upwards ? start + step * rise : start - step * rise;
        double left = x + step * width * STEP;
        failed |= add_upright(builder->ground, left, top - rise, left + width * STEP, top);
        *y = upwards ? top : top - rise;
        add_points(builder, width, *y);
    }
    return failed;
}

static int lay_pit(struct builder *builder, const struct course *course, struct generator *generator, double y)
{
    double left = builder->at * STEP, bottom = y - 4 * STEP;
    double gap = 1.0 + draw_real(generator, course->pit_gap); /* between the left sides of the walls */
    double points = ceil(gap), shift = (points - gap) * STEP, far = left + gap * STEP;
    int failed = add_upright(builder->ground, left, bottom, left + STEP, y);
    failed |= add_upright(builder->ground, far, bottom, far + STEP, y);
    add_points(builder, 1, y);
    add_points(builder, (int)points, bottom);
    add_points(builder, 1, y);
    int last = builder->at - 1;
    if (last < builder->ground->length) builder->ground->x[last] = (float)(last * STEP - shift);
    return failed;
}

static int lay_encoded(struct ground *ground, const struct course *course, struct generator *generator)
{
    enum { NOTHING, STUMP, STAIRS, PIT };
    int kinds[3], count = 0, on_grass = 1, failed = 0;
    if (course->stumps) kinds[count++] = STUMP;
    if (course->stairs) kinds[count++] = STAIRS;
    if (course->pits) kinds[count++] = PIT;

    struct builder builder = {.ground = ground};
    double y = HEIGHT;
    add_points(&builder, STARTPAD, y);
    while (builder.at <= ground->length) {
        int grass = (int)draw_integer(generator, GRASS / 2, GRASS);
        int kind = on_grass && count ? kinds[draw_integer(generator, 1, count + 1) - 1] : NOTHING;
        on_grass = kind == NOTHING;
        if (builder.at == ground->length) break;
        if (kind == STUMP) {
            failed |= lay_stump(&builder, course, generator, y);
        } else if (kind == STAIRS) {
            failed |= lay_stairs(&builder, course, generator, &y);
        } else if (kind == PIT) {
            failed |= lay_pit(&builder, course, generator, y);
        } else {
            int end = builder.at + grass;
            add_points(&builder, 1, y);
            while (builder.at < end && builder.at < ground->length) {
                y = next_height(&builder, y, course->roughness, -1.0 + 2.0 * draw(generator));
                add_points(&builder, 1, y);
            }
            builder.at = end;
        }
    }
    return failed;
}

static int lay_given(struct ground *ground, const struct course *course)
{
    for (int i = 0; i < ground->length; i++) {
        ground->x[i] = (float)course->given_x[i];
        ground->y[i] = (float)course->given_y[i];
    }
    for (int i = 0; i < course->given_boxes; i++) {
        const double *corner = course->given_corners + (size_t)i * CORNERS * 2;
        if (add_upright(ground, corner[0], corner[1], corner[4], corner[5])) return -1;
    }
    return 0;
}

int generate_ground(struct ground *ground, const struct course *course, struct generator *generator)
{
    int failed, scenery = ground->length / CLOUD_STEPS * CLOUD_DRAWS;
    ground->boxes = 0;
    if (course->kind == GROUND_GIVEN) {
        failed = lay_given(ground, course);
        scenery = course->scenery;
    } else if (course->kind == GROUND_ENCODED) {
        failed = lay_encoded(ground, course, generator);
    } else {
        failed = lay_gymnasium(ground, course->kind == GROUND_HARDCORE, generator);
    }
    skip(generator, scenery);
    return failed ? -1 : 0;
}
