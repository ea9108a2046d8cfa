/* Integration of positions and their correction, as in Box2D. */

#pragma once

#include <string.h>

#include "solver.h"

#define POSITION_ITERATIONS 60
#define MAX_TRANSLATION 2.0f
#define MAX_ROTATION (0.5f * PI_F)
#define MAX_LINEAR_CORRECTION 0.2f
#define MAX_ANGULAR_CORRECTION (8.0f / 180.0f * PI_F)
#define BAUMGARTE 0.2f

/* Integrate positions over one step, limiting translation and rotation. */
static void integrate(struct motion *m)
{
    for (int body = 0; body < BODIES; body++) {
        vf dx = STEP_S * m->vx[body], dy = STEP_S * m->vy[body], turn = STEP_S * m->omega[body];
        vf square = dx * dx + dy * dy;
        vi far = square > MAX_TRANSLATION * MAX_TRANSLATION;
        vi spun = turn * turn > MAX_ROTATION * MAX_ROTATION;
        if (any(far | spun)) {
            vf ratio = MAX_TRANSLATION / root(square);
            m->vx[body] = pick(far, m->vx[body] * ratio, m->vx[body]);
            m->vy[body] = pick(far, m->vy[body] * ratio, m->vy[body]);
            m->omega[body] = pick(spun, m->omega[body] * (MAX_ROTATION / magnitude(turn)), m->omega[body]);
        }
        m->x[body] += STEP_S * m->vx[body];
        m->y[body] += STEP_S * m->vy[body];
        m->angle[body] += STEP_S * m->omega[body];
    }
}

/* Push a body out of the ground; return the lanes in which penetration is within tolerance. */
static vi correct_contact(struct island *island, const struct model *model, int body, int slot, vi at_work)
{
    struct contact *c = &island->contact[body][slot];
    struct motion *m = &island->motion;
    const float mass = model->inverse_mass[body], inertia = model->inverse_inertia[body];
    const v2 centre = model->centre[body];
    vf deepest = splat(0);
    for (int i = 0; i < 2; i++) {
        vi here = at_work & c->touching[i];
        if (!any(here)) continue;
        vf s, k, x, y, turn = m->angle[body];
        sine_cosine(turn, &s, &k);
        vf ox = m->x[body] - (k * centre.x - s * centre.y), oy = m->y[body] - (s * centre.x + k * centre.y);
        vf wx = (k * c->local_x[i] - s * c->local_y[i]) + ox, wy = (s * c->local_x[i] + k * c->local_y[i]) + oy;
        vf nx = pick(c->of_body, k * c->face_x - s * c->face_y, c->face_x);
        vf ny = pick(c->of_body, s * c->face_x + k * c->face_y, c->face_y);
        vf px = pick(c->of_body, (k * c->plane_x - s * c->plane_y) + ox, c->plane_x);
        vf py = pick(c->of_body, (s * c->plane_x + k * c->plane_y) + oy, c->plane_y);
        x = pick(c->of_body, c->local_x[i], wx), y = pick(c->of_body, c->local_y[i], wy);
        vf separation = (x - px) * nx + (y - py) * ny - POLYGON_RADIUS - POLYGON_RADIUS;
        nx = pick(c->of_body, -nx, nx), ny = pick(c->of_body, -ny, ny);
        vf rx = x - m->x[body], ry = y - m->y[body];
        deepest = pick(here, least(deepest, separation), deepest);
        vf error = clamp(BAUMGARTE * (separation + LINEAR_SLOP), splat(-MAX_LINEAR_CORRECTION), splat(0));
        vf rn = rx * ny - ry * nx;
        vf impulse = -error / (mass + inertia * rn * rn);
        vf ix = impulse * nx, iy = impulse * ny;
        m->x[body] = pick(here, m->x[body] + mass * ix, m->x[body]);
        m->y[body] = pick(here, m->y[body] + mass * iy, m->y[body]);
        m->angle[body] = pick(here, turn + inertia * (rx * iy - ry * ix), turn);
    }
    return deepest >= -3.0f * LINEAR_SLOP;
}

static vi correct_joint(struct island *island, const struct model *model, int joint, vi at_work)
{
    const struct joint *j = &island->joint[joint];
    const struct joints *kept = &island->kept;
    struct motion *m = &island->motion;
    const int a = JOINT_BODIES[joint][0], b = JOINT_BODIES[joint][1];
    const float ma = model->inverse_mass[a], mb = model->inverse_mass[b];
    const float ia = model->inverse_inertia[a], ib = model->inverse_inertia[b];
    const v2 pa = model->anchor[joint][0], pb = model->anchor[joint][1];
    vf turn_a = m->angle[a], turn_b = m->angle[b], wrong = splat(0);
    if (j->limited) {
        vf angle = turn_b - turn_a - REFERENCE_ANGLE[joint];
        vf below = angle - LOWEST_ANGLE[joint], above = angle - HIGHEST_ANGLE[joint];
        vf less = clamp(below + ANGULAR_SLOP, splat(-MAX_ANGULAR_CORRECTION), splat(0));
        vf more = clamp(above - ANGULAR_SLOP, splat(0), splat(MAX_ANGULAR_CORRECTION));
        vi limit = kept->limit[joint] != 0, lower = kept->limit[joint] < 0;
        wrong = keep(limit, pick(lower, -below, above));
        vf impulse = keep(limit, -j->motor_mass * pick(lower, less, more));
        turn_a -= ia * impulse, turn_b += ib * impulse;
    }
    vf sa, ca, sb, cb;
    sine_cosine(turn_a, &sa, &ca);
    sine_cosine(turn_b, &sb, &cb);
    vf ax = ca * pa.x - sa * pa.y, ay = sa * pa.x + ca * pa.y;
    vf bx = cb * pb.x - sb * pb.y, by = sb * pb.x + cb * pb.y;
    vf dx = m->x[b] + bx - m->x[a] - ax, dy = m->y[b] + by - m->y[a] - ay;
    vf apart = root(dx * dx + dy * dy);
    vf k11 = splat(ma + mb) + ia * ay * ay + ib * by * by;
    vf k12 = -ia * ax * ay - ib * bx * by;
    vf k22 = splat(ma + mb) + ia * ax * ax + ib * bx * bx;
    vf inverse = 1.0f / (k11 * k22 - k12 * k12);
    vf px = -(inverse * (k22 * dx - k12 * dy)), py = -(inverse * (k11 * dy - k12 * dx));
    m->x[a] = pick(at_work, m->x[a] - ma * px, m->x[a]);
    m->y[a] = pick(at_work, m->y[a] - ma * py, m->y[a]);
    m->angle[a] = pick(at_work, turn_a - ia * (ax * py - ay * px), m->angle[a]);
    m->x[b] = pick(at_work, m->x[b] + mb * px, m->x[b]);
    m->y[b] = pick(at_work, m->y[b] + mb * py, m->y[b]);
    m->angle[b] = pick(at_work, turn_b + ib * (bx * py - by * px), m->angle[b]);
    return (apart <= LINEAR_SLOP) & (wrong <= ANGULAR_SLOP);
}

/* Correct all contacts and joints of `ways` islands once; `right` marks lanes within tolerance. */
INLINE void correct_once(struct island *islands, const struct model *model, int ways, const vi *at_work, vi *right)
{
    for (int way = 0; way < ways; way++) right[way] = at_work[way];
    for (int k = 0; k < BODIES; k++)
        for (int body = BODY_ORDER[k], slot = 0, count = most_slots(islands, ways, body); slot < count; slot++)
            for (int way = 0; way < ways; way++)
                if (slot < islands[way].count[body])
                    right[way] &= correct_contact(&islands[way], model, body, slot, at_work[way]);
    for (int k = 0; k < JOINTS; k++)
        for (int way = 0; way < ways; way++)
            right[way] &= correct_joint(&islands[way], model, JOINT_ORDER[k], at_work[way]);
}

/* Copy the data of position correction from one lane to another. */
static void copy_lane(struct island *to, int lane, const struct island *from, int other)
{
    for (int body = 0; body < BODIES; body++) {
        to->motion.x[body][lane] = from->motion.x[body][other];
        to->motion.y[body][lane] = from->motion.y[body][other];
        to->motion.angle[body][lane] = from->motion.angle[body][other];
        for (int slot = 0; slot < from->count[body]; slot++) {
            struct contact *c = &to->contact[body][slot];
            const struct contact *d = &from->contact[body][slot];
            if (!d->touching[0][other]) break;
            if (slot == to->count[body]) memset(&to->contact[body][to->count[body]++], 0, sizeof *c);
            for (int i = 0; i < 2; i++) {
                c->touching[i][lane] = d->touching[i][other];
                c->local_x[i][lane] = d->local_x[i][other], c->local_y[i][lane] = d->local_y[i][other];
            }
            c->face_x[lane] = d->face_x[other], c->face_y[lane] = d->face_y[other];
            c->plane_x[lane] = d->plane_x[other], c->plane_y[lane] = d->plane_y[other];
            c->of_body[lane] = d->of_body[other];
        }
    }
    for (int joint = 0; joint < JOINTS; joint++) {
        to->kept.limit[joint][lane] = from->kept.limit[joint][other];
        to->joint[joint].limited |= to->kept.limit[joint][lane] != 0;
        to->joint[joint].motor_mass = from->joint[joint].motor_mass;
    }
}

/* Continue with the few remaining lanes, compacted into one island. */
static void solve_rest(
    struct island islands[WAYS], const struct model *model, const unsigned left[WAYS], int iteration, vi *solved
)
{
    struct island rest;
    int count = 0, origin[LANES];
    memset(&rest.motion, 0, sizeof rest.motion);
    memset(&rest.kept, 0, sizeof rest.kept);
    memset(rest.count, 0, sizeof rest.count);
    for (int joint = 0; joint < JOINTS; joint++) rest.joint[joint].limited = 0;
    for (int way = 0; way < WAYS; way++)
        for (unsigned lanes = left[way]; lanes; lanes &= lanes - 1, count++) {
            int lane = __builtin_ctz(lanes);
            origin[count] = way * LANES + lane;
            copy_lane(&rest, count, &islands[way], lane);
        }
    vi at_work = from_bits(0xffffffffu >> (32 - count)), right, done = at_work ^ at_work;
    for (; iteration < POSITION_ITERATIONS && any(at_work); iteration++) {
        correct_once(&rest, model, 1, &at_work, &right);
        done |= right;
        at_work &= ~right;
    }
    for (int k = 0; k < count; k++) {
        const int way = origin[k] / LANES, lane = origin[k] % LANES;
        for (int body = 0; body < BODIES; body++) {
            islands[way].motion.x[body][lane] = rest.motion.x[body][k];
            islands[way].motion.y[body][lane] = rest.motion.y[body][k];
            islands[way].motion.angle[body][lane] = rest.motion.angle[body][k];
        }
        solved[way][lane] = done[k];
    }
}

/* Correct positions in the given lanes until within tolerance or out of iterations; `solved` marks the former. */
static void solve_positions(struct island islands[WAYS], const struct model *model, const vi *lanes, vi *solved)
{
    vi at_work[WAYS], right[WAYS];
    for (int way = 0; way < WAYS; way++) at_work[way] = lanes[way], solved[way] = lanes[way] ^ lanes[way];
    for (int i = 0; i < POSITION_ITERATIONS; i++) {
        unsigned left[WAYS];
        int count = 0;
        for (int way = 0; way < WAYS; way++) {
            left[way] = to_bits(at_work[way]);
            count += __builtin_popcount(left[way]);
        }
        if (count == 0) return;
        if (i > 1 && count <= LANES) {
            solve_rest(islands, model, left, i, solved);
            return;
        }
        correct_once(islands, model, WAYS, at_work, right);
        for (int way = 0; way < WAYS; way++) {
            solved[way] |= right[way];
            at_work[way] &= ~right[way];
        }
    }
}
