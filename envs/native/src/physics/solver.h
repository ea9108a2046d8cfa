/* Box2D's sequential-impulse solver (Catto 2005) for the joints and contacts of WAYS * LANES walkers.
 *
 * Joints, contacts and sums follow Box2D's order. Each lane fills as many contact slots of a body as it has contacts;
 * empty slots have no mass and no effect. Impulses depend on each other sequentially, so two islands are interleaved to
 * hide latency. */

#pragma once

#include "body.h"

#define STEP_S 0.02f
#define VELOCITY_ITERATIONS 180
#define WAYS 2
#define SLOTS 6 /* maximum contacts solved per body */

static const int JOINT_ORDER[JOINTS] = {KNEE_2, HIP_2, HIP_1, KNEE_1};
static const int BODY_ORDER[BODIES] = {LOWER_2, LEG_2, HULL, LEG_1, LOWER_1};
static const float LOWEST_ANGLE[JOINTS] = {-0.8f, -1.6f, -0.8f, -1.6f};
static const float REFERENCE_ANGLE[JOINTS] = {-0.05f, 0, 0.05f, 0}; /* between the bodies at creation */
static const float HIGHEST_ANGLE[JOINTS] = {1.1f, -0.1f, 1.1f, -0.1f};

/* Centres of mass, angles and velocities. */
struct motion {
    vf x[BODIES], y[BODIES], angle[BODIES];
    vf vx[BODIES], vy[BODIES], omega[BODIES];
};

/* State of joints between steps. */
struct joints {
    vf x[JOINTS], y[JOINTS], z[JOINTS], motor[JOINTS]; /* impulses */
    vi limit[JOINTS];                                  /* -1: at the lower, 1: at the upper, 0: at none */
};

struct joint {
    vf ax, ay, bx, by; /* anchors from the centres of mass */
    vf xx, xy, yy, xz, yz, zz; /* mass matrix */
    vf inverse_2, inverse_3, motor_mass, speed, most_motor;
    vf cross_x, cross_y, cross_z; /* cross product of its second and third columns */
    vi lower, upper;
    int limited; /* whether any lane is at a limit */
};

struct contact {
    vf nx, ny;
    vf x[2], y[2]; /* of the touches, from the body's centre of mass */
    vf normal_mass[2], tangent_mass[2];
    vf k11, k12, k22, i11, i12, i22; /* matrix of both touches, and its inverse */
    vf normal[2], tangent[2];        /* impulses */
    vi both;                         /* whether two touches are solved as a block */
    int two;                         /* whether `both` holds in any lane */
    /* For positions: */
    vf local_x[2], local_y[2], face_x, face_y, plane_x, plane_y;
    vi touching[2], of_body;
};

struct island {
    struct motion motion;
    struct joints kept;
    struct joint joint[JOINTS];
    struct contact contact[BODIES][SLOTS];
    int count[BODIES]; /* slots filled in any lane */
};

static void prepare_joint(struct island *island, const struct model *model, int joint, vf speed, vf torque)
{
    struct joint *j = &island->joint[joint];
    struct joints *kept = &island->kept;
    struct motion *m = &island->motion;
    const int a = JOINT_BODIES[joint][0], b = JOINT_BODIES[joint][1];
    const float ma = model->inverse_mass[a], mb = model->inverse_mass[b];
    const float ia = model->inverse_inertia[a], ib = model->inverse_inertia[b];
    const v2 pa = model->anchor[joint][0], pb = model->anchor[joint][1];
    vf sa, ca, sb, cb;
    sine_cosine(m->angle[a], &sa, &ca);
    sine_cosine(m->angle[b], &sb, &cb);
    j->ax = ca * pa.x - sa * pa.y, j->ay = sa * pa.x + ca * pa.y;
    j->bx = cb * pb.x - sb * pb.y, j->by = sb * pb.x + cb * pb.y;
    j->xx = splat(ma + mb) + j->ay * j->ay * ia + j->by * j->by * ib;
    j->xy = -j->ay * j->ax * ia - j->by * j->bx * ib;
    j->xz = -j->ay * ia - j->by * ib;
    j->yy = splat(ma + mb) + j->ax * j->ax * ia + j->bx * j->bx * ib;
    j->yz = j->ax * ia + j->bx * ib;
    j->zz = splat(ia + ib);
    j->motor_mass = splat(1.0f / (ia + ib));
    j->speed = speed, j->most_motor = STEP_S * torque;

    j->inverse_2 = 1.0f / (j->xx * j->yy - j->xy * j->xy);
    j->cross_x = j->yy * j->zz - j->yz * j->yz;
    j->cross_y = j->yz * j->xz - j->xy * j->zz;
    j->cross_z = j->xy * j->yz - j->yy * j->xz;
    j->inverse_3 = 1.0f / (j->xx * j->cross_x + j->xy * j->cross_y + j->xz * j->cross_z);

    vf angle = m->angle[b] - m->angle[a] - REFERENCE_ANGLE[joint];
    j->lower = angle <= LOWEST_ANGLE[joint];
    j->upper = ~j->lower & (angle >= HIGHEST_ANGLE[joint]);
    vi limit = j->lower - j->upper; /* masks are -1 */
    kept->z[joint] = keep((limit == kept->limit[joint]) & (limit != 0), kept->z[joint]);
    kept->limit[joint] = limit;
    j->limited = any(limit);

    vf px = kept->x[joint], py = kept->y[joint], motor = kept->motor[joint], z = kept->z[joint];
    m->vx[a] -= ma * px, m->vy[a] -= ma * py, m->omega[a] -= ia * (j->ax * py - j->ay * px + motor + z);
    m->vx[b] += mb * px, m->vy[b] += mb * py, m->omega[b] += ib * (j->bx * py - j->by * px + motor + z);
}

INLINE void solve_joint(struct island *island, const struct model *model, int joint)
{
    const struct joint *j = &island->joint[joint];
    struct joints *kept = &island->kept;
    struct motion *m = &island->motion;
    const int a = JOINT_BODIES[joint][0], b = JOINT_BODIES[joint][1];
    const float ma = model->inverse_mass[a], mb = model->inverse_mass[b];
    const float ia = model->inverse_inertia[a], ib = model->inverse_inertia[b];
    vf vxa = m->vx[a], vya = m->vy[a], wa = m->omega[a], vxb = m->vx[b], vyb = m->vy[b], wb = m->omega[b];

    vf before = kept->motor[joint], most_motor = j->most_motor;
    vf motor = clamp(before - j->motor_mass * (wb - wa - j->speed), -most_motor, most_motor);
    vf turn = motor - before;
    kept->motor[joint] = motor;
    wa -= ia * turn, wb += ib * turn;

    vf ax = j->ax, ay = j->ay, bx = j->bx, by = j->by, xx = j->xx, xy = j->xy, yy = j->yy;
    vf cx = vxb - wb * by - vxa + wa * ay, cy = vyb + wb * bx - vya - wa * ax;
    vf px = j->inverse_2 * (xy * cy - yy * cx), py = j->inverse_2 * (xy * cx - xx * cy), pz = splat(0);
    if (j->limited) {
        /* Solve point and limit together; where the limit would pull, solve the point alone and release the limit. */
        vf xz = j->xz, yz = j->yz, zz = j->zz, cz = wb - wa, old = kept->z[joint];
        vf qx = -(j->inverse_3 * (cx * j->cross_x + cy * j->cross_y + cz * j->cross_z));
        vf qy = -(j->inverse_3 * (xx * (cy * zz - cz * yz) + xy * (cz * xz - cx * zz) + xz * (cx * yz - cy * xz)));
        vf qz = -(j->inverse_3 * (xx * (yy * cz - yz * cy) + xy * (yz * cx - xy * cz) + xz * (xy * cy - yy * cx)));
        vf rx = old * xz - cx, ry = old * yz - cy, new = old + qz;
        vi pulls = (j->lower & (new < 0)) | (j->upper & (new > 0));
        vi limit = j->lower | j->upper;
        qx = pick(pulls, j->inverse_2 * (yy * rx - xy * ry), qx);
        qy = pick(pulls, j->inverse_2 * (xx * ry - xy * rx), qy);
        px = pick(limit, qx, px), py = pick(limit, qy, py), pz = keep(limit, pick(pulls, -old, qz));
        kept->z[joint] = keep(limit & ~pulls, new);
    }
    kept->x[joint] += px, kept->y[joint] += py;
    m->vx[a] = vxa - ma * px, m->vy[a] = vya - ma * py, m->omega[a] = wa - ia * (ax * py - ay * px + pz);
    m->vx[b] = vxb + mb * px, m->vy[b] = vyb + mb * py, m->omega[b] = wb + ib * (bx * py - by * px + pz);
}

/* Compute effective masses of a contact, then warm-start it with the impulses of the last step. */
static void prepare_contact(struct island *island, const struct model *model, int body, int slot)
{
    struct contact *c = &island->contact[body][slot];
    struct motion *m = &island->motion;
    const float mass = model->inverse_mass[body], inertia = model->inverse_inertia[body];
    vf tx = c->ny, ty = -c->nx, k[2], rn[2];
    for (int i = 0; i < 2; i++) {
        rn[i] = c->x[i] * c->ny - c->y[i] * c->nx;
        vf rt = c->x[i] * ty - c->y[i] * tx;
        k[i] = mass + inertia * rn[i] * rn[i];
        c->normal_mass[i] = keep(c->touching[i], 1.0f / k[i]);
        c->tangent_mass[i] = keep(c->touching[i], 1.0f / (mass + inertia * rt * rt));
    }
    vf k12 = mass + inertia * rn[0] * rn[1], det = k[0] * k[1] - k12 * k12;
    c->both = c->touching[1] & (k[0] * k[0] < 1000.0f * det);
    c->two = any(c->both);
    /* The second of two redundant touches is ignored. */
    c->tangent_mass[1] = keep(c->both, c->tangent_mass[1]);
    vf inverse = 1.0f / det;
    c->k11 = k[0], c->k12 = k12, c->k22 = k[1];
    c->i11 = inverse * k[1], c->i12 = -inverse * k12, c->i22 = inverse * k[0];
    for (int i = 0; i < 2; i++) {
        vi solved = i ? c->both : c->touching[0];
        c->normal[i] = keep(solved, c->normal[i]), c->tangent[i] = keep(solved, c->tangent[i]);
        vf px = c->normal[i] * c->nx + c->tangent[i] * tx, py = c->normal[i] * c->ny + c->tangent[i] * ty;
        m->omega[body] += inertia * (c->x[i] * py - c->y[i] * px);
        m->vx[body] += mass * px, m->vy[body] += mass * py;
    }
}

INLINE void solve_contact(struct island *island, const struct model *model, int body, int slot)
{
    struct contact *c = &island->contact[body][slot];
    struct motion *m = &island->motion;
    const float friction = model->friction[body], mass = model->inverse_mass[body];
    const float inertia = model->inverse_inertia[body];
    vf nx = c->nx, ny = c->ny, tx = ny, ty = -nx, x1 = c->x[0], y1 = c->y[0], a1 = c->normal[0];
    vf vx = m->vx[body], vy = m->vy[body], w = m->omega[body];

    vf limit = friction * a1, before = c->tangent[0];
    vf after = clamp(before - c->tangent_mass[0] * ((vx - w * y1) * tx + (vy + w * x1) * ty), -limit, limit);
    vf px = (after - before) * tx, py = (after - before) * ty;
    c->tangent[0] = after;
    vx += mass * px, vy += mass * py, w += inertia * (x1 * py - y1 * px);

    if (!c->two) {
        vf alone = most(a1 - c->normal_mass[0] * ((vx - w * y1) * nx + (vy + w * x1) * ny), splat(0));
        px = (alone - a1) * nx, py = (alone - a1) * ny;
        c->normal[0] = alone;
        m->vx[body] = vx + mass * px, m->vy[body] = vy + mass * py;
        m->omega[body] = w + inertia * (x1 * py - y1 * px);
        return;
    }

    vf x2 = c->x[1], y2 = c->y[1], a2 = c->normal[1];
    limit = friction * a2, before = c->tangent[1];
    after = clamp(before - c->tangent_mass[1] * ((vx - w * y2) * tx + (vy + w * x2) * ty), -limit, limit);
    px = (after - before) * tx, py = (after - before) * ty;
    c->tangent[1] = after;
    vx += mass * px, vy += mass * py, w += inertia * (x2 * py - y2 * px);

    /* Four cases of the linear complementarity problem of two touches; the first that holds. */
    vf vn1 = (vx - w * y1) * nx + (vy + w * x1) * ny, vn2 = (vx - w * y2) * nx + (vy + w * x2) * ny;
    vf alone = most(a1 - c->normal_mass[0] * vn1, splat(0));
    vf b1 = vn1 - (c->k11 * a1 + c->k12 * a2), b2 = vn2 - (c->k12 * a1 + c->k22 * a2);
    vf z1 = -(c->i11 * b1 + c->i12 * b2), z2 = -(c->i12 * b1 + c->i22 * b2);
    vf one = -(c->normal_mass[0] * b1), other = -(c->normal_mass[1] * b2);
    vi first = (z1 >= 0) & (z2 >= 0);
    vi second = (one >= 0) & (c->k12 * one + b2 >= 0);
    vi third = (other >= 0) & (c->k12 * other + b1 >= 0);
    vi fourth = (b1 >= 0) & (b2 >= 0);
    z1 = pick(first, z1, pick(second, one, pick(third | fourth, splat(0), a1)));
    z2 = pick(first, z2, pick(second, splat(0), pick(third, other, pick(fourth, splat(0), a2))));
    z1 = pick(c->both, z1, alone), z2 = pick(c->both, z2, a2);

    c->normal[0] = z1, c->normal[1] = z2;
    vf px1 = (z1 - a1) * nx, py1 = (z1 - a1) * ny, px2 = (z2 - a2) * nx, py2 = (z2 - a2) * ny;
    m->vx[body] = vx + mass * (px1 + px2), m->vy[body] = vy + mass * (py1 + py2);
    m->omega[body] = w + inertia * ((x1 * py1 - y1 * px1) + (x2 * py2 - y2 * px2));
}

INLINE int most_slots(const struct island *islands, int ways, int body)
{
    int count = 0;
    for (int way = 0; way < ways; way++) count = islands[way].count[body] > count ? islands[way].count[body] : count;
    return count;
}

static void solve_velocities(struct island islands[WAYS], const struct model *model)
{
    for (int i = 0; i < VELOCITY_ITERATIONS; i++) {
        for (int k = 0; k < JOINTS; k++)
            for (int way = 0; way < WAYS; way++) solve_joint(&islands[way], model, JOINT_ORDER[k]);
        for (int k = 0; k < BODIES; k++)
            for (int body = BODY_ORDER[k], slot = 0, count = most_slots(islands, WAYS, body); slot < count; slot++)
                for (int way = 0; way < WAYS; way++)
                    if (slot < islands[way].count[body]) solve_contact(&islands[way], model, body, slot);
    }
}
