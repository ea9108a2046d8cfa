/* Time of impact of a moving body with a piece of ground: Box2D's conservative advancement along separating axes.
 *
 * Distances by Gilbert, Johnson and Keerthi (1988), between shapes without skins. */

#pragma once

#include "manifold.h"

/* Motion of a body during a step, linear in position and angle. */
struct sweep {
    v2 from, to; /* centre of mass */
    float angle_from, angle_to;
    float begun; /* time of `from`, as a fraction of the step in [0, 1) */
};

#define IMPACT_DISTANCE larger(LINEAR_SLOP, TOTAL_RADIUS - 3.0f * LINEAR_SLOP)
#define IMPACT_TOLERANCE (0.25f * LINEAR_SLOP)

INLINE struct pose pose_within(const struct sweep *sweep, v2 centre, float t)
{
    v2 middle = add(scaled(1.0f - t, sweep->from), scaled(t, sweep->to));
    return pose_at(middle, (1.0f - t) * sweep->angle_from + t * sweep->angle_to, centre);
}

/* Move the start of a sweep to a later time. */
INLINE void advance_sweep(struct sweep *sweep, float share)
{
    float t = (share - sweep->begun) / (1.0f - sweep->begun);
    sweep->from = add(scaled(1.0f - t, sweep->from), scaled(t, sweep->to));
    sweep->angle_from = (1.0f - t) * sweep->angle_from + t * sweep->angle_to;
    sweep->begun = share;
}

INLINE int find_support(const v2 *vertex, int count, v2 direction)
{
    int best = 0;
    float value = dot(vertex[0], direction);
    for (int i = 1; i < count; i++) {
        float next = dot(vertex[i], direction);
        if (next > value) value = next, best = i;
    }
    return best;
}

struct corner {
    v2 on_ground, on_body, apart; /* apart = on_body - on_ground */
    float weight;
    int ground, body; /* vertices */
};

struct simplex {
    struct corner corner[3];
    int count;
};

/* Final simplex of a search, which warm-starts the next one. */
struct simplex_memory {
    float size;
    int count, ground[3], body[3];
};

static float size_of_simplex(const struct simplex *simplex)
{
    const struct corner *c = simplex->corner;
    if (simplex->count == 2) return length(sub(c[0].apart, c[1].apart));
    if (simplex->count == 3) return cross(sub(c[1].apart, c[0].apart), sub(c[2].apart, c[0].apart));
    return 0;
}

INLINE void keep_one(struct simplex *simplex, int which)
{
    simplex->corner[0] = simplex->corner[which];
    simplex->corner[0].weight = 1;
    simplex->count = 1;
}

INLINE void keep_two(struct simplex *simplex, int one, int other, float weight, float other_weight)
{
    float inverse = 1.0f / (weight + other_weight);
    struct corner first = simplex->corner[one], second = simplex->corner[other];
    first.weight = weight * inverse, second.weight = other_weight * inverse;
    simplex->corner[0] = first, simplex->corner[1] = second;
    simplex->count = 2;
}

static void solve_segment(struct simplex *simplex)
{
    v2 w1 = simplex->corner[0].apart, w2 = simplex->corner[1].apart, edge = sub(w2, w1);
    float second = -dot(w1, edge), first = dot(w2, edge);
    if (second <= 0) keep_one(simplex, 0);
    else if (first <= 0) keep_one(simplex, 1);
    else keep_two(simplex, 0, 1, first, second);
}

static void solve_triangle(struct simplex *simplex)
{
    v2 w1 = simplex->corner[0].apart, w2 = simplex->corner[1].apart, w3 = simplex->corner[2].apart;
    v2 e12 = sub(w2, w1), e13 = sub(w3, w1), e23 = sub(w3, w2);
    float d12_1 = dot(w2, e12), d12_2 = -dot(w1, e12);
    float d13_1 = dot(w3, e13), d13_2 = -dot(w1, e13);
    float d23_1 = dot(w3, e23), d23_2 = -dot(w2, e23);
    float n = cross(e12, e13);
    float d1 = n * cross(w2, w3), d2 = n * cross(w3, w1), d3 = n * cross(w1, w2);
    if (d12_2 <= 0 && d13_2 <= 0) keep_one(simplex, 0);
    else if (d12_1 > 0 && d12_2 > 0 && d3 <= 0) keep_two(simplex, 0, 1, d12_1, d12_2);
    else if (d13_1 > 0 && d13_2 > 0 && d2 <= 0) keep_two(simplex, 0, 2, d13_1, d13_2);
    else if (d12_1 <= 0 && d23_2 <= 0) keep_one(simplex, 1);
    else if (d13_1 <= 0 && d23_1 <= 0) keep_one(simplex, 2);
    else if (d23_1 > 0 && d23_2 > 0 && d1 <= 0) keep_two(simplex, 2, 1, d23_2, d23_1);
    else {
        float inverse = 1.0f / (d1 + d2 + d3);
        simplex->corner[0].weight = d1 * inverse;
        simplex->corner[1].weight = d2 * inverse;
        simplex->corner[2].weight = d3 * inverse;
    }
}

INLINE struct corner corner_at(const struct polygon *ground, int i, const struct polygon *shape, struct pose pose, int j)
{
    v2 on_ground = ground->vertex[i], on_body = placed(pose, shape->vertex[j]);
    return (struct corner){on_ground, on_body, sub(on_body, on_ground), 0, i, j};
}

static float find_distance(
    struct simplex_memory *memory, const struct polygon *ground, const struct polygon *shape, struct pose pose
)
{
    struct simplex simplex = {.count = memory->count};
    struct corner *corner = simplex.corner;
    for (int i = 0; i < memory->count; i++)
        corner[i] = corner_at(ground, memory->ground[i], shape, pose, memory->body[i]);
    if (simplex.count > 1) {
        float size = size_of_simplex(&simplex);
        if (size < 0.5f * memory->size || 2.0f * memory->size < size || size < EPSILON) simplex.count = 0;
    }
    if (simplex.count == 0) {
        corner[0] = corner_at(ground, 0, shape, pose, 0);
        corner[0].weight = 1;
        simplex.count = 1;
    }
    for (int iteration = 0; iteration < 20; iteration++) {
        int count = simplex.count, met_ground[3], met_body[3], met = 0;
        for (int i = 0; i < count; i++) met_ground[i] = corner[i].ground, met_body[i] = corner[i].body;
        if (count == 2) solve_segment(&simplex);
        if (count == 3) solve_triangle(&simplex);
        if (simplex.count == 3) break;
        v2 direction;
        if (simplex.count == 1) direction = negated(corner[0].apart);
        else {
            v2 edge = sub(corner[1].apart, corner[0].apart);
            int left = cross(edge, negated(corner[0].apart)) > 0;
            direction = left ? (v2){-1.0f * edge.y, edge.x} : (v2){edge.y, -1.0f * edge.x};
        }
        if (dot(direction, direction) < EPSILON * EPSILON) break;
        int i = find_support(ground->vertex, ground->count, negated(direction));
        int j = find_support(shape->vertex, shape->count, unrotated(pose, direction));
        for (int k = 0; k < count; k++) met |= met_ground[k] == i && met_body[k] == j;
        if (met) break;
        corner[simplex.count++] = corner_at(ground, i, shape, pose, j);
    }
    memory->size = size_of_simplex(&simplex);
    memory->count = simplex.count;
    for (int i = 0; i < simplex.count; i++)
        memory->ground[i] = corner[i].ground, memory->body[i] = corner[i].body;
    if (simplex.count == 1) return length(sub(corner[0].on_ground, corner[0].on_body));
    if (simplex.count == 3) return 0;
    v2 a = add(scaled(corner[0].weight, corner[0].on_ground), scaled(corner[1].weight, corner[1].on_ground));
    v2 b = add(scaled(corner[0].weight, corner[0].on_body), scaled(corner[1].weight, corner[1].on_body));
    return length(sub(a, b));
}

/* Separating axis of ground and body. */
struct axis {
    enum { BETWEEN_POINTS, FACE_OF_GROUND, FACE_OF_BODY } kind;
    const struct polygon *ground, *shape;
    const struct sweep *sweep;
    v2 centre, local, direction;
};

static void find_axis(struct axis *axis, const struct simplex_memory *memory, float t)
{
    struct pose pose = pose_within(axis->sweep, axis->centre, t);
    const v2 *ground = axis->ground->vertex, *body = axis->shape->vertex;
    if (memory->count == 1) {
        axis->kind = BETWEEN_POINTS;
        axis->direction = normalized(sub(placed(pose, body[memory->body[0]]), ground[memory->ground[0]]));
    } else if (memory->ground[0] == memory->ground[1]) {
        v2 one = body[memory->body[0]], other = body[memory->body[1]], edge = sub(other, one);
        axis->kind = FACE_OF_BODY;
        axis->direction = normalized((v2){edge.y, -edge.x});
        axis->local = scaled(0.5f, add(one, other));
        v2 normal = rotated(pose, axis->direction);
        if (dot(sub(ground[memory->ground[0]], placed(pose, axis->local)), normal) < 0)
            axis->direction = negated(axis->direction);
    } else {
        v2 one = ground[memory->ground[0]], other = ground[memory->ground[1]], edge = sub(other, one);
        axis->kind = FACE_OF_GROUND;
        axis->direction = normalized((v2){edge.y, -edge.x});
        axis->local = scaled(0.5f, add(one, other));
        if (dot(sub(placed(pose, body[memory->body[0]]), axis->local), axis->direction) < 0)
            axis->direction = negated(axis->direction);
    }
}

/* Return the separation of two vertices at t along the axis; with `search`, first select the deepest vertices. */
static float separation_along(const struct axis *axis, int *ground, int *body, float t, int search)
{
    struct pose pose = pose_within(axis->sweep, axis->centre, t);
    const struct polygon *g = axis->ground, *b = axis->shape;
    if (axis->kind == FACE_OF_BODY) {
        v2 normal = rotated(pose, axis->direction);
        if (search) *ground = find_support(g->vertex, g->count, negated(normal));
        return dot(sub(g->vertex[*ground], placed(pose, axis->local)), normal);
    }
    if (search) *body = find_support(b->vertex, b->count, unrotated(pose, negated(axis->direction)));
    v2 point = placed(pose, b->vertex[*body]);
    if (axis->kind == FACE_OF_GROUND) return dot(sub(point, axis->local), axis->direction);
    if (search) *ground = find_support(g->vertex, g->count, axis->direction);
    return dot(sub(point, g->vertex[*ground]), axis->direction);
}

/* Find the time in [t1, t2] at which the separation of two vertices reaches the impact distance. */
static float find_root(const struct axis *axis, int ground, int body, float t1, float s1, float t2, float s2)
{
    const float target = IMPACT_DISTANCE;
    float end = t2;
    for (int i = 0; i < 50; i++) {
        float t = i & 1 ? t1 + (target - s1) * (t2 - t1) / (s2 - s1) : 0.5f * (t1 + t2);
        float s = separation_along(axis, &ground, &body, t, 0);
        float miss = s - target;
        if ((miss > 0 ? miss : -miss) < IMPACT_TOLERANCE) return t;
        if (s > target) t1 = t, s1 = s;
        else t2 = t, s2 = s;
    }
    return end;
}

/* Return the time of impact as a fraction of the rest of the sweep; 1 without impact or if they overlap at the start.
 */
static float find_impact(const struct polygon *ground, const struct polygon *shape, v2 centre, struct sweep sweep)
{
    const float target = IMPACT_DISTANCE, tolerance = IMPACT_TOLERANCE;
    const float period = 2.0f * PI_F, shift = period * __builtin_floorf(sweep.angle_from / period);
    sweep.angle_from -= shift, sweep.angle_to -= shift;
    struct axis axis = {.ground = ground, .shape = shape, .sweep = &sweep, .centre = centre};
    struct simplex_memory memory = {.count = 0};
    float t1 = 0;
    for (int iteration = 0; iteration < 20; iteration++) {
        float distance = find_distance(&memory, ground, shape, pose_within(&sweep, centre, t1));
        if (distance <= 0) return 1;
        if (distance < target + tolerance) return t1;
        find_axis(&axis, &memory, t1);
        float t2 = 1;
        for (int push = 0; push < 16; push++) {
            int at_ground = 0, at_body = 0;
            float s2 = separation_along(&axis, &at_ground, &at_body, t2, 1);
            if (s2 > target + tolerance) return 1;
            if (s2 > target - tolerance) {
                t1 = t2;
                break;
            }
            float s1 = separation_along(&axis, &at_ground, &at_body, t1, 0);
            if (!(s1 >= target - tolerance)) return 1; /* also for NaN positions */
            if (s1 <= target + tolerance) return t1;
            t2 = find_root(&axis, at_ground, at_body, t1, s1, t2, s2);
        }
    }
    return 1;
}
