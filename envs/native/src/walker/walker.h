/* Gymnasium's BipedalWalker, Hardcore and the terrains of POET, with the physics of box2d.h. */

#pragma once

#include <stdlib.h>
#include <string.h>

#include "lidar.h"
#include "physics/box2d.h"

#define FPS 50
#define WALKER_OBSERVATIONS 24
#define WALKER_ACTIONS 4

static void observe(const struct walker_block *block, const struct model *model, unsigned mask, vf *observation)
{
    const struct walkers *w = &block->walkers;
    const struct motion *m = &w->motion;
    struct frames f;
    find_frames(&f, m, model);
    observation[0] = m->angle[HULL];
    observation[1] = narrow(2.0 * widen(m->omega[HULL]) / (double)FPS);
    observation[2] = narrow(0.3 * widen(m->vx[HULL]) * (600 / SCALE) / (double)FPS);
    observation[3] = narrow(0.3 * widen(m->vy[HULL]) * (400 / SCALE) / (double)FPS);
    for (int joint = 0; joint < JOINTS; joint++) {
        const int a = JOINT_BODIES[joint][0], b = JOINT_BODIES[joint][1], knee = joint == KNEE_1 || joint == KNEE_2;
        vf *row = observation + 4 + 2 * joint + (joint >= HIP_2);
        vf angle = m->angle[b] - m->angle[a] - REFERENCE_ANGLE[joint];
        row[0] = knee ? narrow(widen(angle) + 1.0) : angle;
        row[1] = (m->omega[b] - m->omega[a]) / MOTOR_SPEED[joint];
    }
    observation[8] = keep(w->on_ground[0], splat(1)), observation[13] = keep(w->on_ground[1], splat(1));
    for (unsigned left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        float fraction[RAYS];
        cast_rays(&block->own[lane].scene, frame_of(&f, HULL, lane).p, fraction);
        for (int i = 0; i < RAYS; i++) observation[14 + i][lane] = fraction[i];
    }
}

INLINE double shape(const struct walkers *w, v2 position, int lane)
{
    float angle = w->motion.angle[HULL][lane];
    return 130 * (double)position.x / SCALE - 5.0 * (double)(angle < 0 ? -angle : angle);
}

static v2 hull_at(const struct walkers *w, const struct model *model, int lane)
{
    v2 middle = {w->motion.x[HULL][lane], w->motion.y[HULL][lane]};
    return pose_at(middle, w->motion.angle[HULL][lane], model->centre[HULL]).p;
}

/* Compute the reward of a step; return whether the walker fell or reached the end. */
static int score(
    struct walker_block *block, const struct model *model, const struct course *course, int lane, const vf action[JOINTS],
    double *reward
)
{
    v2 position = hull_at(&block->walkers, model, lane);
    double shaping = shape(&block->walkers, position, lane);
    float gained = (float)(shaping - block->own[lane].shaping);
    block->own[lane].shaping = shaping;
    for (int k = 0; k < WALKER_ACTIONS; k++) {
        float effort = action[k][lane] < 0 ? -action[k][lane] : action[k][lane];
        gained -= (float)(0.00035 * MOTORS_TORQUE) * smaller(effort, 1);
    }
    int fell = block->walkers.fallen[lane] || position.x < 0;
    *reward = fell ? -100.0 : (double)gained;
    return fell || (double)position.x > (course->length - TERRAIN_GRASS) * TERRAIN_STEP;
}

static unsigned step_walkers(
    void *memory, const void *settings, unsigned mask, const float *actions, float *observations, double *reward
)
{
    struct walker_group *group = memory;
    struct walkers before[WAYS];
    unsigned masks[WAYS], ended = 0;
    vf action[WAYS][WALKER_ACTIONS], seen[WALKER_OBSERVATIONS];
    for (int way = 0; way < WAYS; way++) {
        masks[way] = mask >> way * LANES & ALL_LANES;
        for (int k = 0; k < WALKER_ACTIONS; k++)
            action[way][k] = keep(from_bits(masks[way]), ((const vf *)actions)[k * WAYS + way]);
        if (masks[way] != ALL_LANES) before[way] = group->block[way].walkers;
    }
    step_world(group, masks, action);
    for (int way = 0; way < WAYS; way++) {
        struct walker_block *block = &group->block[way];
        const vi lanes = from_bits(masks[way]);
        observe(block, &group->model, masks[way], seen);
        if (masks[way] != ALL_LANES) {
            vi *now = (vi *)&block->walkers;
            const vi *then = (const vi *)&before[way];
            for (size_t i = 0; i < sizeof(struct walkers) / sizeof(vi); i++) now[i] = pick_i(lanes, now[i], then[i]);
        }
        for (int k = 0; k < WALKER_OBSERVATIONS; k++) {
            vf *row = (vf *)observations + k * WAYS + way;
            *row = pick(lanes, seen[k], *row);
        }
        for (unsigned left = masks[way]; left; left &= left - 1) {
            int lane = __builtin_ctz(left), number = way * LANES + lane;
            if (score(block, &group->model, settings, lane, action[way], &reward[number])) ended |= 1u << number;
        }
    }
    return ended;
}

static void place_body(
    struct walker_block *block, const struct model *model, int body, int lane, double x, double y, double angle
)
{
    struct walkers *w = &block->walkers;
    const struct polygon *shape = &model->shape[body];
    struct pose pose = {.p = {(float)x, (float)y}};
    sine_cosine_1((float)angle, &pose.s, &pose.c);
    v2 middle = placed(pose, model->centre[body]), low = placed(pose, shape->vertex[0]), high = low;
    for (int i = 1; i < shape->count; i++) {
        v2 v = placed(pose, shape->vertex[i]);
        low = (v2){smaller(low.x, v.x), smaller(low.y, v.y)}, high = (v2){larger(high.x, v.x), larger(high.y, v.y)};
    }
    w->motion.x[body][lane] = middle.x, w->motion.y[body][lane] = middle.y, w->motion.angle[body][lane] = (float)angle;
    w->motion.vx[body][lane] = w->motion.vy[body][lane] = w->motion.omega[body][lane] = w->still_s[body][lane] = 0;
    struct bounds around = {{FAR, FAR}, {-FAR, -FAR}};
    widen_bounds(&around, low, high, (v2){0, 0});
    set_bounds(w, body, lane, around);
    block->own[lane].near[body].count = 0;
    find_near(&block->own[lane].near[body], &block->own[lane].scene, around);
}

static void lay_scene(struct scene *scene, const struct course *course, struct generator *generator)
{
    generate_ground(&scene->ground, course, generator);
    scene->kind = course->kind;
    for (int i = 0; i < scene->ground.length - 1; i++) {
        v2 edge = {scene->ground.x[i + 1] - scene->ground.x[i], scene->ground.y[i + 1] - scene->ground.y[i]};
        v2 along = normalized(edge);
        scene->normal[i] = (v2){along.y, -along.x};
    }
}

static void start_walkers(
    void *memory, const void *settings, struct generator *generators, unsigned mask, float *observations
)
{
    struct walker_group *group = memory;
    double reward[WAYS * LANES];
    vf still[WAYS * WALKER_ACTIONS] = {0};
    for (unsigned left = mask; left; left &= left - 1) {
        int number = __builtin_ctz(left), lane = number % LANES;
        struct walker_block *block = &group->block[number / LANES];
        struct walkers *w = &block->walkers;
        struct walker_env *own = &block->own[lane];
        own->begun = generators[number];
        lay_scene(&own->scene, settings, &generators[number]);
        const double x = TERRAIN_STEP * TERRAIN_STARTPAD / 2, y = TERRAIN_HEIGHT + 2 * LEG_HEIGHT;
        place_body(block, &group->model, HULL, lane, x, y, 0);
        w->push[lane] = (float)draw_uniform(&generators[number], -5, 5);
        for (int leg = 0; leg < 2; leg++) {
            const double angle = leg ? 0.05 : -0.05, hip = y - LEG_HEIGHT / 2 - LEG_DOWN;
            const double knee = y - LEG_HEIGHT * 3 / 2 - LEG_DOWN;
            place_body(block, &group->model, leg ? LEG_2 : LEG_1, lane, x, hip, angle);
            place_body(block, &group->model, leg ? LOWER_2 : LOWER_1, lane, x, knee, angle);
            w->on_ground[leg][lane] = 0;
        }
        for (int joint = 0; joint < JOINTS; joint++) {
            w->joints.x[joint][lane] = w->joints.y[joint][lane] = w->joints.z[joint][lane] = 0;
            w->joints.motor[joint][lane] = 0, w->joints.limit[joint][lane] = 0;
        }
        w->fallen[lane] = 0;
        own->shaping = 0;
    }
    step_walkers(memory, settings, mask, (const float *)still, observations, reward);
}

static void close_walkers(void *memory)
{
    struct walker_group *group = memory;
    for (int number = 0; number < WAYS * LANES; number++) {
        struct scene *scene = &group->block[number / LANES].own[number % LANES].scene;
        if (scene->normal != NULL) close_ground(&scene->ground);
        free(scene->normal);
    }
}

static int open_walkers(void *memory, const void *settings)
{
    struct walker_group *group = memory;
    const struct course *course = settings;
    set_model(&group->model);
    for (int number = 0; number < WAYS * LANES; number++) {
        struct scene *scene = &group->block[number / LANES].own[number % LANES].scene;
        if (open_ground(&scene->ground, course->length) < 0) {
            close_walkers(memory);
            return -1;
        }
        scene->normal = malloc((size_t)course->length * sizeof(v2));
        if (scene->normal == NULL) {
            close_ground(&scene->ground);
            close_walkers(memory);
            return -1;
        }
    }
    return 0;
}

/* Saved state of one walker: its lane of every vector, and its own state except the ground. */
struct saved_walker {
    int32_t lane[sizeof(struct walkers) / sizeof(vi)];
    struct near near[BODIES];
    double shaping;
    struct generator begun;
};

static void save_walker(const void *memory, int number, void *to)
{
    const struct walker_block *block = &((const struct walker_group *)memory)->block[number / LANES];
    const int lane = number % LANES;
    struct saved_walker saved;
    memset(&saved, 0, sizeof saved);
    for (size_t i = 0; i < sizeof(struct walkers) / sizeof(vi); i++)
        saved.lane[i] = ((const vi *)&block->walkers)[i][lane];
    for (int body = 0; body < BODIES; body++) {
        const struct near *near = &block->own[lane].near[body];
        saved.near[body].count = near->count;
        memcpy(saved.near[body].pair, near->pair, (size_t)near->count * sizeof(struct pair));
    }
    saved.shaping = block->own[lane].shaping;
    saved.begun = block->own[lane].begun;
    memcpy(to, &saved, sizeof saved);
}

static void load_walker(void *memory, const void *settings, int number, const void *from)
{
    struct walker_block *block = &((struct walker_group *)memory)->block[number / LANES];
    const int lane = number % LANES;
    struct walker_env *own = &block->own[lane];
    struct saved_walker saved;
    memcpy(&saved, from, sizeof saved);
    struct generator generator = saved.begun;
    for (size_t i = 0; i < sizeof(struct walkers) / sizeof(vi); i++)
        ((vi *)&block->walkers)[i][lane] = saved.lane[i];
    memcpy(own->near, saved.near, sizeof own->near);
    own->shaping = saved.shaping;
    own->begun = saved.begun;
    lay_scene(&own->scene, settings, &generator);
}

static void pose_walker(const void *memory, int number, float poses[BODIES][3])
{
    const struct walker_group *group = memory;
    const struct motion *m = &group->block[number / LANES].walkers.motion;
    const int lane = number % LANES;
    for (int body = 0; body < BODIES; body++) {
        v2 middle = {m->x[body][lane], m->y[body][lane]};
        struct pose pose = pose_at(middle, m->angle[body][lane], group->model.centre[body]);
        poses[body][0] = pose.p.x, poses[body][1] = pose.p.y, poses[body][2] = m->angle[body][lane];
    }
}

static const struct ground *ground_of_walker(const void *memory, int number)
{
    return &((const struct walker_group *)memory)->block[number / LANES].own[number % LANES].scene.ground;
}

static const struct task walker_task = {
    .name = "walker",
    .lanes = WAYS * LANES,
    .observations = WALKER_OBSERVATIONS,
    .actions = WALKER_ACTIONS,
    .choices = 0,
    .group_bytes = sizeof(struct walker_group),
    .saved_bytes = sizeof(struct saved_walker),
    .open = open_walkers,
    .close = close_walkers,
    .start = start_walkers,
    .step = step_walkers,
    .save = save_walker,
    .load = load_walker,
    .poses = pose_walker,
    .ground = ground_of_walker,
};
