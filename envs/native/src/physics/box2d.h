/* One Box2D step of WAYS blocks of LANES walkers, each on its own ground. */

#pragma once

#include "physics/continuous.h"

#define MOTORS_TORQUE 80.0f

static const float MOTOR_SPEED[JOINTS] = {4, 6, 4, 6}; /* rad/s */

/* State in SIMD lanes; consists only of vectors of 4-byte numbers. */
struct walkers {
    struct motion motion;
    struct joints joints;
    vf still_s[BODIES]; /* Box2D's sleep time */
    vf low_x[BODIES], low_y[BODIES], high_x[BODIES], high_y[BODIES]; /* fat AABBs */
    vi fallen, on_ground[2];
    vf push; /* N on the hull in the first step */
};

/* State of one walker. */
struct walker_env {
    struct scene scene;
    struct near near[BODIES];
    double shaping;
    struct generator begun; /* before the ground was generated, to regenerate it for a saved walker */
};

struct walker_block {
    struct walkers walkers;
    struct walker_env own[LANES];
};

struct walker_group {
    struct walker_block block[WAYS];
    struct model model;
};

INLINE struct bounds get_bounds(const struct walkers *w, int body, int lane)
{
    return (struct bounds){{w->low_x[body][lane], w->low_y[body][lane]}, {w->high_x[body][lane], w->high_y[body][lane]}};
}

INLINE void set_bounds(struct walkers *w, int body, int lane, struct bounds bounds)
{
    w->low_x[body][lane] = bounds.low.x, w->low_y[body][lane] = bounds.low.y;
    w->high_x[body][lane] = bounds.high.x, w->high_y[body][lane] = bounds.high.y;
}

static void record_events(struct walkers *w, int body, int lane, const struct events *events)
{
    if (body == HULL && events->began) w->fallen[lane] = -1;
    if (events->changed && (body == LOWER_1 || body == LOWER_2)) w->on_ground[body == LOWER_2][lane] = -events->touches;
}

/* Fill a body's slots with its touching pairs, newest first. */
static void fill_slots(struct island *island, int body, int lane, const struct near *near)
{
    int slot = 0;
    for (int i = near->count - 1; i >= 0 && slot < SLOTS; i--) {
        const struct pair *pair = &near->pair[i];
        if (!pair->touching) continue;
        const struct manifold *manifold = &pair->manifold;
        if (slot == island->count[body]) memset(&island->contact[body][island->count[body]++], 0, sizeof(struct contact));
        struct contact *c = &island->contact[body][slot++];
        c->of_body[lane] = -(manifold->face_of_body != 0);
        c->face_x[lane] = manifold->normal.x, c->face_y[lane] = manifold->normal.y;
        c->plane_x[lane] = manifold->plane.x, c->plane_y[lane] = manifold->plane.y;
        for (int k = 0; k < manifold->count; k++) {
            const struct touch *touch = &manifold->touch[k];
            c->touching[k][lane] = -1;
            c->local_x[k][lane] = touch->local.x, c->local_y[k][lane] = touch->local.y;
            c->normal[k][lane] = touch->normal_impulse, c->tangent[k][lane] = touch->tangent_impulse;
        }
    }
}

static void store_impulses(const struct island *island, int body, int lane, struct near *near)
{
    int slot = 0;
    for (int i = near->count - 1; i >= 0 && slot < SLOTS; i--) {
        struct pair *pair = &near->pair[i];
        if (!pair->touching) continue;
        const struct contact *c = &island->contact[body][slot++];
        for (int k = 0; k < (c->both[lane] ? 2 : 1); k++) {
            pair->manifold.touch[k].normal_impulse = c->normal[k][lane];
            pair->manifold.touch[k].tangent_impulse = c->tangent[k][lane];
        }
    }
}

/* Frames of bodies. */
struct frames {
    vf x[BODIES], y[BODIES], s[BODIES], c[BODIES];
};

static void find_frames(struct frames *f, const struct motion *m, const struct model *model)
{
    for (int body = 0; body < BODIES; body++) {
        const v2 centre = model->centre[body];
        sine_cosine(m->angle[body], &f->s[body], &f->c[body]);
        f->x[body] = m->x[body] - (f->c[body] * centre.x - f->s[body] * centre.y);
        f->y[body] = m->y[body] - (f->s[body] * centre.x + f->c[body] * centre.y);
    }
}

INLINE struct pose frame_of(const struct frames *f, int body, int lane)
{
    return (struct pose){{f->x[body][lane], f->y[body][lane]}, f->s[body][lane], f->c[body][lane]};
}

/* Compute normals and lever arms of a contact. */
static void place_contact(struct contact *c, const struct frames *f, const struct motion *m, int body)
{
    vf s = f->s[body], k = f->c[body], ox = f->x[body], oy = f->y[body];
    vf nx = pick(c->of_body, k * c->face_x - s * c->face_y, c->face_x);
    vf ny = pick(c->of_body, s * c->face_x + k * c->face_y, c->face_y);
    vf px = pick(c->of_body, (k * c->plane_x - s * c->plane_y) + ox, c->plane_x);
    vf py = pick(c->of_body, (s * c->plane_x + k * c->plane_y) + oy, c->plane_y);
    for (int i = 0; i < 2; i++) {
        vf x = pick(c->of_body, c->local_x[i], (k * c->local_x[i] - s * c->local_y[i]) + ox);
        vf y = pick(c->of_body, c->local_y[i], (s * c->local_x[i] + k * c->local_y[i]) + oy);
        vf lift = POLYGON_RADIUS - ((x - px) * nx + (y - py) * ny);
        vf mx = 0.5f * ((x + lift * nx) + (x - POLYGON_RADIUS * nx));
        vf my = 0.5f * ((y + lift * ny) + (y - POLYGON_RADIUS * ny));
        c->x[i] = keep(c->touching[i], mx - m->x[body]), c->y[i] = keep(c->touching[i], my - m->y[body]);
    }
    c->nx = pick(c->of_body, -nx, nx), c->ny = pick(c->of_body, -ny, ny);
}

/* Put walkers to sleep whose bodies hardly moved for 0.5 s; motors wake them in the next step. Return these lanes. */
static vi sleep_bodies(struct walkers *w, struct motion *m, vi solved)
{
    const float angular = ANGULAR_SLOP * ANGULAR_SLOP, linear = 0.01f * 0.01f;
    vf least_rest = splat(FAR);
    for (int body = 0; body < BODIES; body++) {
        vi moves = (m->omega[body] * m->omega[body] > angular) |
                   (m->vx[body] * m->vx[body] + m->vy[body] * m->vy[body] > linear);
        w->still_s[body] = keep(~moves, w->still_s[body] + STEP_S);
        least_rest = least(least_rest, w->still_s[body]);
    }
    vi asleep = (least_rest >= 0.5f) & solved;
    for (int body = 0; body < BODIES; body++) {
        m->vx[body] = keep(~asleep, m->vx[body]), m->vy[body] = keep(~asleep, m->vy[body]);
        m->omega[body] = keep(~asleep, m->omega[body]);
        w->still_s[body] = keep(~asleep, w->still_s[body]);
    }
    return asleep;
}

/* Update pairs of bodies that have left their fat AABBs. */
static void update_bounds(
    struct walker_block *block, const struct model *model, const struct frames *from, const struct frames *to, unsigned mask
)
{
    struct walkers *w = &block->walkers;
    for (int body = 0; body < BODIES; body++) {
        const struct polygon *shape = &model->shape[body];
        vf low_x = splat(FAR), low_y = low_x, high_x = -low_x, high_y = -low_x;
        for (int i = 0; i < shape->count; i++) {
            const v2 v = shape->vertex[i];
            for (const struct frames *f = from;; f = to) {
                vf x = (f->c[body] * v.x - f->s[body] * v.y) + f->x[body];
                vf y = (f->s[body] * v.x + f->c[body] * v.y) + f->y[body];
                low_x = least(low_x, x), low_y = least(low_y, y);
                high_x = most(high_x, x), high_y = most(high_y, y);
                if (f == to) break;
            }
        }
        const float skin = POLYGON_RADIUS;
        vi inside = (w->low_x[body] <= low_x - skin) & (w->low_y[body] <= low_y - skin) &
                    (high_x + skin <= w->high_x[body]) & (high_y + skin <= w->high_y[body]);
        for (unsigned left = ~to_bits(inside) & mask; left; left &= left - 1) {
            int lane = __builtin_ctz(left);
            struct bounds around = get_bounds(w, body, lane);
            v2 shift = {to->x[body][lane] - from->x[body][lane], to->y[body][lane] - from->y[body][lane]};
            widen_bounds(&around, (v2){low_x[lane], low_y[lane]}, (v2){high_x[lane], high_y[lane]}, shift);
            set_bounds(w, body, lane, around);
            find_near(&block->own[lane].near[body], &block->own[lane].scene, around);
        }
    }
}

static void solve_ground_impacts(
    struct walker_block *block, const struct model *model, struct motion *m, const struct frames *frames, int body, int lane
)
{
    struct walkers *w = &block->walkers;
    const struct motion *before = &w->motion;
    struct moving_body moving = {
        .model = model,
        .body = body,
        .near = &block->own[lane].near[body],
        .sweep = {{before->x[body][lane], before->y[body][lane]}, {m->x[body][lane], m->y[body][lane]},
                  before->angle[body][lane], m->angle[body][lane], 0},
        .velocity = {{m->vx[body][lane], m->vy[body][lane]}, m->omega[body][lane]},
        .around = get_bounds(w, body, lane),
    };
    struct polygon start;
    place_polygon(&start, &model->shape[body], frame_of(frames, body, lane));
    if (!can_impact(&moving, &block->own[lane].scene, &start)) return;
    solve_impacts(&moving, &block->own[lane].scene);
    m->x[body][lane] = moving.sweep.to.x, m->y[body][lane] = moving.sweep.to.y;
    m->angle[body][lane] = moving.sweep.angle_to;
    m->vx[body][lane] = moving.velocity.v.x, m->vy[body][lane] = moving.velocity.v.y;
    m->omega[body][lane] = moving.velocity.omega;
    set_bounds(w, body, lane, moving.around);
    record_events(w, body, lane, &moving.events);
}

/* Find contacts of the walkers of the mask and prepare the solver. */
static void begin_step(
    struct walker_block *block, const struct model *model, struct island *island, const struct frames *frames, unsigned mask,
    const vf action[JOINTS]
)
{
    struct walkers *w = &block->walkers;
    struct motion *m = &island->motion;
    *m = w->motion;
    island->kept = w->joints;
    memset(island->count, 0, sizeof island->count);
    for (unsigned left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        for (int body = 0; body < BODIES; body++) {
            struct near *near = &block->own[lane].near[body];
            if (near->count == 0) continue;
            struct pose pose = frame_of(frames, body, lane);
            struct polygon placed_;
            struct events events = {0};
            place_polygon(&placed_, &model->shape[body], pose);
            update_near(
                near, &block->own[lane].scene, get_bounds(w, body, lane), &model->shape[body], &placed_, pose, &events
            );
            record_events(w, body, lane, &events);
            fill_slots(island, body, lane, near);
        }
    }
    for (int body = 0; body < BODIES; body++) {
        vf force = body == HULL ? w->push : splat(0);
        m->vx[body] += STEP_S * (model->inverse_mass[body] * force);
        m->vy[body] += splat(STEP_S * -10.0f);
    }
    w->push = splat(0);
    for (int k = 0; k < BODIES; k++)
        for (int body = BODY_ORDER[k], slot = 0; slot < island->count[body]; slot++) {
            place_contact(&island->contact[body][slot], frames, m, body);
            prepare_contact(island, model, body, slot);
        }
    for (int k = 0; k < JOINTS; k++) {
        int joint = JOINT_ORDER[k];
        vf a = action[joint], sign = keep(a > 0, splat(1)) - keep(a < 0, splat(1));
        vf torque = MOTORS_TORQUE * least(magnitude(a), splat(1));
        prepare_joint(island, model, joint, MOTOR_SPEED[joint] * sign, torque);
    }
}

/* Store the solution and resolve impacts of the walkers of the mask. */
static void end_step(
    struct walker_block *block, const struct model *model, struct island *island, const struct frames *from, unsigned mask,
    vi solved
)
{
    struct walkers *w = &block->walkers;
    struct motion *m = &island->motion;
    struct frames to;
    for (unsigned left = mask; left; left &= left - 1)
        for (int body = 0, lane = __builtin_ctz(left); body < BODIES; body++)
            store_impulses(island, body, lane, &block->own[lane].near[body]);
    unsigned awake = mask & ~to_bits(sleep_bodies(w, m, solved));
    find_frames(&to, m, model);
    update_bounds(block, model, from, &to, mask);
    for (unsigned left = awake; left; left &= left - 1)
        for (int body = 0, lane = __builtin_ctz(left); body < BODIES; body++)
            if (block->own[lane].near[body].count > 0) solve_ground_impacts(block, model, m, from, body, lane);
    w->motion = *m;
    w->joints = island->kept;
}

/* Step the lanes of the masks; the state of other lanes becomes invalid. */
static void step_world(struct walker_group *group, const unsigned masks[WAYS], const vf action[WAYS][JOINTS])
{
    struct island islands[WAYS];
    struct frames frames[WAYS];
    vi lanes[WAYS], solved[WAYS];
    const struct model *model = &group->model;
    for (int way = 0; way < WAYS; way++) {
        lanes[way] = from_bits(masks[way]);
        find_frames(&frames[way], &group->block[way].walkers.motion, model);
        begin_step(&group->block[way], model, &islands[way], &frames[way], masks[way], action[way]);
    }
    solve_velocities(islands, model);
    for (int way = 0; way < WAYS; way++) integrate(&islands[way].motion);
    solve_positions(islands, model, lanes, solved);
    for (int way = 0; way < WAYS; way++)
        end_step(&group->block[way], model, &islands[way], &frames[way], masks[way], solved[way]);
}
