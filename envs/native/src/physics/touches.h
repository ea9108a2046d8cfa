/* Contacts of a single body, solved without joints after an impact. */

#pragma once

#include <string.h>

#include "pairs.h"
#include "solver.h"

/* Touches of one manifold: lever arms from the body's centre of mass, and the normal. */
struct touches {
    int count, both;
    v2 normal, arm[2];
    float normal_mass[2], tangent_mass[2], k11, k12, k22, i11, i12, i22;
    float impulse[2], tangent[2];
};

static void find_touches(
    struct touches *touches, const struct manifold *manifold, struct pose pose, v2 middle, float mass, float inertia
)
{
    int on_body = manifold->face_of_body;
    v2 normal = on_body ? rotated(pose, manifold->normal) : manifold->normal;
    v2 plane = on_body ? placed(pose, manifold->plane) : manifold->plane;
    float k[2] = {0, 0}, rn[2] = {0, 0};
    *touches = (struct touches){.count = manifold->count, .normal = on_body ? negated(normal) : normal};
    for (int i = 0; i < manifold->count; i++) {
        v2 clip = on_body ? manifold->touch[i].local : placed(pose, manifold->touch[i].local);
        v2 one = add(clip, scaled(POLYGON_RADIUS - dot(sub(clip, plane), normal), normal));
        v2 other = sub(clip, scaled(POLYGON_RADIUS, normal));
        touches->arm[i] = sub(scaled(0.5f, add(one, other)), middle);
        v2 tangent = {touches->normal.y, -touches->normal.x};
        float rt = cross(touches->arm[i], tangent);
        rn[i] = cross(touches->arm[i], touches->normal);
        k[i] = mass + inertia * rn[i] * rn[i];
        touches->normal_mass[i] = 1.0f / k[i];
        touches->tangent_mass[i] = 1.0f / (mass + inertia * rt * rt);
    }
    if (manifold->count < 2) return;
    float k12 = mass + inertia * rn[0] * rn[1], det = k[0] * k[1] - k12 * k12;
    touches->both = k[0] * k[0] < 1000.0f * det;
    if (!touches->both) {
        touches->count = 1;
        return;
    }
    float inverse = 1.0f / det;
    touches->k11 = k[0], touches->k12 = k12, touches->k22 = k[1];
    touches->i11 = inverse * k[1], touches->i12 = -inverse * k12, touches->i22 = inverse * k[0];
}

struct velocity {
    v2 v;
    float omega;
};

INLINE v2 velocity_of(struct velocity u, v2 arm) { return add(u.v, (v2){-u.omega * arm.y, u.omega * arm.x}); }

/* Solve the touches of one manifold once, as `solve_contact` does for SIMD lanes. */
static void solve_touches(struct touches *c, struct velocity *velocity, float mass, float inertia, float friction)
{
    struct velocity u = *velocity;
    v2 normal = c->normal, tangent = {normal.y, -normal.x};
    for (int i = 0; i < c->count; i++) {
        float most_tangent = friction * c->impulse[i], before = c->tangent[i];
        float lambda = c->tangent_mass[i] * -dot(velocity_of(u, c->arm[i]), tangent);
        c->tangent[i] = clamped(before + lambda, -most_tangent, most_tangent);
        v2 push = scaled(c->tangent[i] - before, tangent);
        u.v = add(u.v, scaled(mass, push));
        u.omega += inertia * cross(c->arm[i], push);
    }
    float a1 = c->impulse[0], a2 = c->impulse[1], x1 = a1, x2 = a2;
    float vn1 = dot(velocity_of(u, c->arm[0]), normal), vn2 = dot(velocity_of(u, c->arm[1]), normal);
    if (!c->both) x1 = larger(a1 + -c->normal_mass[0] * vn1, 0);
    else {
        float b1 = vn1 - (c->k11 * a1 + c->k12 * a2), b2 = vn2 - (c->k12 * a1 + c->k22 * a2);
        float z1 = -(c->i11 * b1 + c->i12 * b2), z2 = -(c->i12 * b1 + c->i22 * b2);
        float y1 = -c->normal_mass[0] * b1, y2 = -c->normal_mass[1] * b2;
        if (z1 >= 0 && z2 >= 0) x1 = z1, x2 = z2;
        else if (y1 >= 0 && c->k12 * y1 + b2 >= 0) x1 = y1, x2 = 0;
        else if (y2 >= 0 && c->k12 * y2 + b1 >= 0) x1 = 0, x2 = y2;
        else if (b1 >= 0 && b2 >= 0) x1 = 0, x2 = 0;
    }
    c->impulse[0] = x1, c->impulse[1] = x2;
    v2 one = scaled(x1 - a1, normal), other = scaled(x2 - a2, normal);
    u.v = add(u.v, scaled(mass, add(one, other)));
    u.omega += inertia * (cross(c->arm[0], one) + cross(c->arm[1], other));
    *velocity = u;
}

/* Run all iterations. States soon repeat bit for bit; cycles are detected (Brent 1980) and skipped. */
static void iterate_touches(
    struct touches *touches, int count, struct velocity *u, float mass, float inertia, float friction
)
{
    struct velocity seen = *u;
    float impulses[PAIRS][4];
    for (int i = 0, marked = 0, next = 0; i < VELOCITY_ITERATIONS; i++) {
        if (i == next) {
            seen = *u, marked = i, next = 2 * i + 1;
            for (int k = 0; k < count; k++) {
                memcpy(impulses[k], touches[k].impulse, 2 * sizeof(float));
                memcpy(impulses[k] + 2, touches[k].tangent, 2 * sizeof(float));
            }
        }
        for (int k = 0; k < count; k++) solve_touches(&touches[k], u, mass, inertia, friction);
        int again = !memcmp(&seen, u, sizeof seen);
        for (int k = 0; k < count && again; k++)
            again = !memcmp(impulses[k], touches[k].impulse, 2 * sizeof(float)) &&
                    !memcmp(impulses[k] + 2, touches[k].tangent, 2 * sizeof(float));
        int left = VELOCITY_ITERATIONS - 1 - i;
        if (again) i += left - left % (i + 1 - marked), next = VELOCITY_ITERATIONS;
    }
}
