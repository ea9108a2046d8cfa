/* Particle physics with contact forces: envs/tasks/particles.py, operation for operation. */

#pragma once

#include "runtime/native.h"

#define TICK_S 0.1
#define SPEED_KEPT 0.75 /* share per step */
#define CONTACT_FORCE 100.0
#define CONTACT_MARGIN 1e-3
#define MAX_EXPONENT 40.0
#define HALVINGS 6

struct point {
    double x, y;
};

static inline double exponential(double x)
{
    static const double inverse[] = { /* 1 / k! */
        1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
        1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200, 1.0 / 1307674368000,
    };
    const double r = x / (1 << HALVINGS);
    double e = inverse[15];
    for (int k = 14; k >= 0; k--) e = e * r + inverse[k];
    for (int k = 0; k < HALVINGS; k++) e = e * e;
    return e;
}

static inline double softplus(double x)
{
    if (!(-MAX_EXPONENT < x && x < MAX_EXPONENT)) return x > 0 ? x : 0;
    const double e = exponential(x > 0 ? -x : x), s = e / (2.0 + e), s2 = s * s;
    double area = 1.0 / 33;
    for (int k = 15; k >= 0; k--) area = area * s2 + 1.0 / (2 * k + 1);
    return (x > 0 ? x : 0) + 2.0 * s * area;
}

static inline struct point draw_point(struct generator *generator, double most)
{
    const double x = draw_uniform(generator, -most, most);
    return (struct point){x, draw_uniform(generator, -most, most)};
}

static inline double distance(struct point one, struct point other)
{
    const double x = one.x - other.x, y = one.y - other.y;
    return __builtin_sqrt(x * x + y * y);
}

/* Add contact forces between `count` bodies, of which the first `moving` can move. */
static inline void push_apart(
    struct point *forces, const struct point *places, const double *radii, int moving, int count
)
{
    for (int a = 0; a < moving; a++)
        for (int b = a + 1; b < count; b++) {
            const double apart = distance(places[a], places[b]), reach = radii[a] + radii[b];
            const double depth = softplus((reach - apart) / CONTACT_MARGIN) * CONTACT_MARGIN;
            if (depth == 0 || apart == 0) continue;
            const double x = CONTACT_FORCE * (places[a].x - places[b].x) / apart * depth;
            const double y = CONTACT_FORCE * (places[a].y - places[b].y) / apart * depth;
            forces[a].x += x, forces[a].y += y;
            if (b < moving) forces[b].x -= x, forces[b].y -= y;
        }
}

static inline void move(struct point *place, struct point *speed, struct point force)
{
    place->x += speed->x * TICK_S, place->y += speed->y * TICK_S;
    speed->x = speed->x * SPEED_KEPT + force.x * TICK_S, speed->y = speed->y * SPEED_KEPT + force.y * TICK_S;
}
