/* Round bodies that forces move and contact pushes apart: envs/tasks/particles.py, operation for operation. */

#ifndef PADDOCK_PARTICLES_H
#define PADDOCK_PARTICLES_H

#include <stdint.h>

#define DT 0.1
#define KEPT 0.75
#define STIFFNESS 100.0
#define MARGIN 1e-3
#define FAR 40.0
#define HALVINGS 6

struct point {
    double x, y;
};

static inline double softplus(double x)
{
    static const double exponential[] = {
        1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
        1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200, 1.0 / 1307674368000,
    };
    if (!(-FAR < x && x < FAR)) return x > 0 ? x : 0;
    const double r = (x > 0 ? -x : x) / (1 << HALVINGS);
    double e = exponential[15];
    for (int k = 14; k >= 0; k--) e = e * r + exponential[k];
    for (int k = 0; k < HALVINGS; k++) e = e * e;
    const double s = e / (2.0 + e), s2 = s * s;
    double area = 1.0 / 33;
    for (int k = 15; k >= 0; k--) area = area * s2 + 1.0 / (2 * k + 1);
    return (x > 0 ? x : 0) + 2.0 * s * area;
}

static inline double distance(struct point one, struct point other)
{
    const double x = one.x - other.x, y = one.y - other.y;
    return __builtin_sqrt(x * x + y * y);
}

static inline void push_apart(struct point *forces, const struct point *places, const double *radii, int count)
{
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++) {
            const double apart = distance(places[a], places[b]), reach = radii[a] + radii[b];
            const double depth = softplus((reach - apart) / MARGIN) * MARGIN;
            if (depth == 0 || apart == 0) continue;
            const double x = STIFFNESS * (places[a].x - places[b].x) / apart * depth;
            const double y = STIFFNESS * (places[a].y - places[b].y) / apart * depth;
            forces[a].x += x, forces[a].y += y;
            forces[b].x -= x, forces[b].y -= y;
        }
}

static inline void move(struct point *place, struct point *speed, struct point force)
{
    place->x += speed->x * DT, place->y += speed->y * DT;
    speed->x = speed->x * KEPT + force.x * DT, speed->y = speed->y * KEPT + force.y * DT;
}

/* The point, or zero in place of what nobody would have saved: bodies come nowhere near so far in 2^30 steps. */
static inline struct point mended(struct point saved)
{
    const double most = 1e12;
    return (struct point){
        saved.x > -most && saved.x < most ? saved.x : 0,
        saved.y > -most && saved.y < most ? saved.y : 0,
    };
}

#endif
