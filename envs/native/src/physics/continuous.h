/* Continuous collision: a body that would penetrate the ground during a step stops at the first contact and continues
 * from there without its joints, as in Box2D. This is rare, so bodies are handled one at a time. */

#pragma once

#include "physics/pairs.h"
#include "physics/positions.h"
#include "physics/touches.h"

#define MAX_IMPACTS 8 /* of one pair in one step, minus one */
#define IMPACT_BAUMGARTE 0.75f
#define IMPACT_CORRECTIONS 20

/* A body during one step. */
struct moving_body {
    const struct model *model;
    int body;
    struct near *near;
    struct sweep sweep;
    struct velocity velocity;
    struct bounds around;
    struct events events;
};

/* Push a body out of what it touches; update `sweep->to`. */
static void correct_impact(struct moving_body *moving, struct pair *const *touched, int count)
{
    const struct model *model = moving->model;
    const float mass = model->inverse_mass[moving->body], inertia = model->inverse_inertia[moving->body];
    const v2 centre = model->centre[moving->body];
    struct sweep *sweep = &moving->sweep;
    for (int iteration = 0; iteration < IMPACT_CORRECTIONS; iteration++) {
        float deepest = 0;
        for (int k = 0; k < count; k++) {
            const struct manifold *manifold = &touched[k]->manifold;
            for (int i = 0; i < manifold->count; i++) {
                struct pose pose = pose_at(sweep->to, sweep->angle_to, centre);
                int on_body = manifold->face_of_body;
                v2 normal = on_body ? rotated(pose, manifold->normal) : manifold->normal;
                v2 plane = on_body ? placed(pose, manifold->plane) : manifold->plane;
                v2 point = on_body ? manifold->touch[i].local : placed(pose, manifold->touch[i].local);
                float separation = dot(sub(point, plane), normal) - POLYGON_RADIUS - POLYGON_RADIUS;
                if (on_body) normal = negated(normal);
                v2 arm = sub(point, sweep->to);
                deepest = smaller(deepest, separation);
                float error = clamped(IMPACT_BAUMGARTE * (separation + LINEAR_SLOP), -MAX_LINEAR_CORRECTION, 0);
                float rn = cross(arm, normal);
                v2 push = scaled(-error / (mass + inertia * rn * rn), normal);
                sweep->to = add(sweep->to, scaled(mass, push));
                sweep->angle_to += inertia * cross(arm, push);
            }
        }
        if (deepest >= -1.5f * LINEAR_SLOP) return;
    }
}

/* Solve a body's contacts at the time of an impact and integrate it over the rest of the step. */
static void resolve_impact(struct moving_body *moving, struct pair *const *touched, int count)
{
    const struct model *model = moving->model;
    const float mass = model->inverse_mass[moving->body], inertia = model->inverse_inertia[moving->body];
    struct sweep *sweep = &moving->sweep;
    struct velocity *u = &moving->velocity;
    struct touches touches[PAIRS];
    correct_impact(moving, touched, count);
    sweep->from = sweep->to, sweep->angle_from = sweep->angle_to;
    struct pose pose = pose_at(sweep->to, sweep->angle_to, model->centre[moving->body]);
    for (int k = 0; k < count; k++)
        find_touches(&touches[k], &touched[k]->manifold, pose, sweep->to, mass, inertia);
    iterate_touches(touches, count, u, mass, inertia, model->friction[moving->body]);
    const float rest = (1.0f - sweep->begun) * STEP_S;
    v2 shift = scaled(rest, u->v);
    if (dot(shift, shift) > MAX_TRANSLATION * MAX_TRANSLATION) u->v = scaled(MAX_TRANSLATION / length(shift), u->v);
    float turn = rest * u->omega;
    if (turn * turn > MAX_ROTATION * MAX_ROTATION) u->omega *= MAX_ROTATION / (turn > 0 ? turn : -turn);
    sweep->to = add(sweep->to, scaled(rest, u->v));
    sweep->angle_to += rest * u->omega;
}

/* Update the fat AABB of a body that has moved; if the body left it, find nearby pieces again. */
static void update_moving_bounds(struct moving_body *moving, const struct scene *scene)
{
    const struct polygon *shape = &moving->model->shape[moving->body];
    const v2 centre = moving->model->centre[moving->body];
    struct pose from = pose_at(moving->sweep.from, moving->sweep.angle_from, centre);
    struct pose to = pose_at(moving->sweep.to, moving->sweep.angle_to, centre);
    v2 low = placed(to, shape->vertex[0]), high = low;
    for (int i = 0; i < shape->count; i++) {
        v2 a = placed(from, shape->vertex[i]), b = placed(to, shape->vertex[i]);
        low = (v2){smaller(low.x, smaller(a.x, b.x)), smaller(low.y, smaller(a.y, b.y))};
        high = (v2){larger(high.x, larger(a.x, b.x)), larger(high.y, larger(a.y, b.y))};
    }
    if (!widen_bounds(&moving->around, low, high, sub(to.p, from.p))) return;
    find_near(moving->near, scene, moving->around);
}

/* Return the pair of the first impact in the rest of a step, and its time; NULL if there is none. */
static struct pair *first_impact(struct moving_body *moving, const struct scene *scene, float *when)
{
    struct pair *first = NULL;
    for (int i = moving->near->count - 1; i >= 0; i--) {
        struct pair *pair = &moving->near->pair[i];
        if (!pair->enabled || pair->impacts > MAX_IMPACTS) continue;
        if (!pair->known) {
            struct piece piece;
            get_piece(&piece, scene, pair->piece);
            const float begun = moving->sweep.begun;
            float t = find_impact(
                &piece.polygon, &moving->model->shape[moving->body], moving->model->centre[moving->body], moving->sweep
            );
            pair->impact = t < 1 ? smaller(begun + (1.0f - begun) * t, 1) : 1;
            pair->known = 1;
        }
        if (pair->impact < *when) first = pair, *when = pair->impact;
    }
    return first;
}

/* Conservatively test whether a body can hit anything in this step, by separating axes of nearby faces. A point of the
 * body is at most `reach` from the centre, so rotating by an angle moves it off its chord by at most reach * angle^2 /
 * 8. */
static int can_impact(struct moving_body *moving, const struct scene *scene, const struct polygon *before)
{
    const float least_gap = IMPACT_DISTANCE + IMPACT_TOLERANCE + 1e-4f;
    const float turn = moving->sweep.angle_to - moving->sweep.angle_from;
    const float gap = least_gap + moving->model->reach[moving->body] * turn * turn * 0.125f;
    struct polygon after;
    int some = 0;
    place_polygon(
        &after, &moving->model->shape[moving->body],
        pose_at(moving->sweep.to, moving->sweep.angle_to, moving->model->centre[moving->body])
    );
    v2 low = before->vertex[0], high = low;
    for (int k = 0; k < before->count; k++) {
        v2 a = before->vertex[k], b = after.vertex[k];
        low = (v2){smaller(low.x, smaller(a.x, b.x)), smaller(low.y, smaller(a.y, b.y))};
        high = (v2){larger(high.x, larger(a.x, b.x)), larger(high.y, larger(a.y, b.y))};
    }
    for (int i = 0; i < moving->near->count; i++) {
        struct pair *pair = &moving->near->pair[i];
        struct piece piece;
        get_piece(&piece, scene, pair->piece);
        const struct polygon *ground = &piece.polygon;
        struct bounds bounds = bounds_of_piece(scene, pair->piece);
        const float fat = EXTENSION + POLYGON_RADIUS;
        int apart = low.x - (bounds.high.x - fat) > gap || low.y - (bounds.high.y - fat) > gap ||
                (bounds.low.x + fat) - high.x > gap || (bounds.low.y + fat) - high.y > gap;
        for (int face = 0; face < (piece.edge ? 1 : ground->count) && !apart; face++) {
            v2 normal = ground->normal[face];
            if (piece.edge && dot(normal, sub(before->centroid, ground->vertex[0])) < 0) normal = negated(normal);
            float s = FAR;
            for (int k = 0; k < before->count; k++) {
                s = smaller(s, dot(normal, sub(before->vertex[k], ground->vertex[face])));
                s = smaller(s, dot(normal, sub(after.vertex[k], ground->vertex[face])));
            }
            apart = s > gap;
        }
        pair->impact = 1, pair->known = apart;
        pair->impacts = 0, pair->enabled = 1;
        some |= !apart;
    }
    return some;
}

/* Resolve all impacts of a body. Bodies do not collide with each other and joints are ignored, so each is independent.
 */
static void solve_impacts(struct moving_body *moving, const struct scene *scene)
{
    const struct polygon *shape = &moving->model->shape[moving->body];
    const v2 centre = moving->model->centre[moving->body];
    for (;;) {
        float when = 1;
        struct pair *first = first_impact(moving, scene, &when);
        if (first == NULL || 1.0f - 10.0f * EPSILON < when) return;
        struct sweep before = moving->sweep;
        advance_sweep(&moving->sweep, when);
        moving->sweep.to = moving->sweep.from, moving->sweep.angle_to = moving->sweep.angle_from;
        struct pose pose = pose_at(moving->sweep.to, moving->sweep.angle_to, centre);
        struct polygon body;
        place_polygon(&body, shape, pose);

        struct pair *touched[PAIRS];
        int count = 0;
        for (int i = moving->near->count; i >= 0; i--) {
            /* The pair that collides comes first, then the others, newest first. */
            struct pair *pair = i == moving->near->count ? first : &moving->near->pair[i];
            if (pair == first && i < moving->near->count) continue;
            struct piece piece;
            get_piece(&piece, scene, pair->piece);
            int was = pair->touching;
            pair->enabled = 1;
            pair->touching = update_manifold(&pair->manifold, &piece, shape, &body, pose);
            record_touch(&moving->events, was, pair->touching);
            if (pair->touching) touched[count++] = pair;
            if (pair == first && !pair->touching) break;
        }
        first->known = 0;
        first->impacts++;
        if (!first->touching) {
            first->enabled = 0;
            moving->sweep = before;
            continue;
        }
        resolve_impact(moving, touched, count);
        for (int i = 0; i < moving->near->count; i++) moving->near->pair[i].known = 0;
        update_moving_bounds(moving, scene);
    }
}
