/* Contact manifolds of a body with a piece of ground: Box2D's collision of a polygon with an edge or a box.
 *
 * The ground is fixed at the origin, so its frame is the world frame. */

#pragma once

#include "body.h"

struct touch {
    v2 local; /* in the body's frame if the face is the ground's, else in the world frame */
    float normal_impulse, tangent_impulse;
    uint32_t feature; /* Box2D's contact id, stable between steps */
};

struct manifold {
    int32_t count;        /* of touches */
    int32_t face_of_body; /* whether the face is the body's */
    v2 normal, plane;     /* of the face, in its owner's frame */
    struct touch touch[2];
};

struct piece {
    int edge;        /* 1: an edge from polygon.vertex[0] to [1], with normal[0]; 0: a box */
    struct polygon polygon;
};

struct clip {
    v2 v;
    uint8_t index_a, index_b, type_a, type_b; /* types: 0 vertex, 1 face */
};

INLINE uint32_t feature_of(struct clip clip)
{
    return clip.index_a | (uint32_t)clip.index_b << 8 | (uint32_t)clip.type_a << 16 | (uint32_t)clip.type_b << 24;
}

INLINE struct clip swapped(struct clip clip)
{
    return (struct clip){clip.v, clip.index_b, clip.index_a, clip.type_b, clip.type_a};
}

/* Clip a segment to the half-plane behind the normal (Sutherland-Hodgman); return the number of points left. */
static int clip_segment(struct clip out[2], const struct clip in[2], v2 normal, float offset, int vertex)
{
    int count = 0;
    float one = dot(normal, in[0].v) - offset, other = dot(normal, in[1].v) - offset;
    if (one <= 0) out[count++] = in[0];
    if (other <= 0) out[count++] = in[1];
    if (one * other < 0) {
        v2 v = add(in[0].v, scaled(one / (one - other), sub(in[1].v, in[0].v)));
        out[count++] = (struct clip){v, (uint8_t)vertex, in[0].index_b, 0, 1};
    }
    return count;
}

/* Collide with an edge without neighbours; `body` is `shape` in the world frame. */
static void collide_edge(
    struct manifold *manifold, const struct polygon *edge, const struct polygon *shape, const struct polygon *body,
    struct pose pose
)
{
    const v2 v1 = edge->vertex[0], v2_ = edge->vertex[1], face = edge->normal[0];
    const int count = shape->count;
    manifold->count = 0;
    int front = dot(face, sub(body->centroid, v1)) >= 0;
    v2 normal = front ? face : negated(face);

    float by_edge = FAR;
    for (int i = 0; i < count; i++) by_edge = smaller(dot(normal, sub(body->vertex[i], v1)), by_edge);
    if (by_edge > TOTAL_RADIUS) return;

    float by_body = -FAR;
    int side = -1;
    for (int i = 0; i < count; i++) {
        v2 n = negated(body->normal[i]);
        float s = smaller(dot(n, sub(body->vertex[i], v1)), dot(n, sub(body->vertex[i], v2_)));
        if (s > TOTAL_RADIUS) return;
        if (s > by_body) by_body = s, side = i;
    }

    struct clip incident[2], once[2], twice[2];
    int i1, i2;
    v2 from, to, reference;
    int on_body = side >= 0 && by_body > 0.98f * by_edge + 0.001f;
    if (on_body) {
        incident[0] = (struct clip){v1, 0, (uint8_t)side, 0, 1};
        incident[1] = (struct clip){v2_, 0, (uint8_t)side, 0, 1};
        i1 = side, i2 = side + 1 < count ? side + 1 : 0;
        from = body->vertex[i1], to = body->vertex[i2], reference = body->normal[i1];
    } else {
        int best = 0;
        float least_dot = dot(normal, body->normal[0]);
        for (int i = 1; i < count; i++) {
            float value = dot(normal, body->normal[i]);
            if (value < least_dot) least_dot = value, best = i;
        }
        int next = best + 1 < count ? best + 1 : 0;
        incident[0] = (struct clip){body->vertex[best], 0, (uint8_t)best, 1, 0};
        incident[1] = (struct clip){body->vertex[next], 0, (uint8_t)next, 1, 0};
        i1 = front ? 0 : 1, i2 = front ? 1 : 0;
        from = front ? v1 : v2_, to = front ? v2_ : v1, reference = normal;
    }
    v2 sideways = {reference.y, -reference.x}, back = negated(sideways);
    if (clip_segment(once, incident, sideways, dot(sideways, from), i1) < 2) return;
    if (clip_segment(twice, once, back, dot(back, to), i2) < 2) return;

    manifold->face_of_body = on_body;
    manifold->normal = on_body ? shape->normal[i1] : reference;
    manifold->plane = on_body ? shape->vertex[i1] : from;
    for (int i = 0; i < 2; i++) {
        if (!(dot(reference, sub(twice[i].v, from)) <= TOTAL_RADIUS)) continue;
        struct touch *touch = &manifold->touch[manifold->count++];
        touch->local = on_body ? twice[i].v : unplaced(pose, twice[i].v);
        touch->feature = feature_of(on_body ? swapped(twice[i]) : twice[i]);
    }
}

/* Return the separation of `two` from face `side` of `one`, both in the world frame. */
INLINE float separation_at(const struct polygon *one, int side, const struct polygon *two)
{
    int index = 0;
    float least_dot = FAR;
    for (int i = 0; i < two->count; i++) {
        float value = dot(two->vertex[i], one->normal[side]);
        if (value < least_dot) least_dot = value, index = i;
    }
    return dot(sub(two->vertex[index], one->vertex[side]), one->normal[side]);
}

/* Find the face of `one` with maximum separation from `two`, by hill climbing from the one facing it. */
static float find_face(int *found, const struct polygon *one, const struct polygon *two)
{
    const int count = one->count;
    v2 towards = sub(two->centroid, one->centroid);
    int face = 0;
    float most_dot = -FAR;
    for (int i = 0; i < count; i++) {
        float value = dot(one->normal[i], towards);
        if (value > most_dot) most_dot = value, face = i;
    }
    int before = face > 0 ? face - 1 : count - 1, after = face + 1 < count ? face + 1 : 0;
    float s = separation_at(one, face, two);
    float s_before = separation_at(one, before, two), s_after = separation_at(one, after, two);
    int best, step;
    float most_s;
    if (s_before > s && s_before > s_after) best = before, most_s = s_before, step = count - 1;
    else if (s_after > s) best = after, most_s = s_after, step = 1;
    else {
        *found = face;
        return s;
    }
    for (;;) {
        face = (best + step) % count;
        s = separation_at(one, face, two);
        if (!(s > most_s)) break;
        best = face, most_s = s;
    }
    *found = best;
    return most_s;
}

static void collide_box(
    struct manifold *manifold, const struct polygon *box, const struct polygon *shape, const struct polygon *body,
    struct pose pose
)
{
    int face_a, face_b;
    manifold->count = 0;
    float by_box = find_face(&face_a, box, body);
    if (by_box > TOTAL_RADIUS) return;
    float by_body = find_face(&face_b, body, box);
    if (by_body > TOTAL_RADIUS) return;

    int on_body = by_body > 0.98f * by_box + 0.001f;
    const struct polygon *one = on_body ? body : box, *two = on_body ? box : body, *own = on_body ? shape : box;
    int i1 = on_body ? face_b : face_a, i2 = i1 + 1 < one->count ? i1 + 1 : 0;
    int index = 0;
    float least_dot = FAR;
    for (int i = 0; i < two->count; i++) {
        float value = dot(one->normal[i1], two->normal[i]);
        if (value < least_dot) least_dot = value, index = i;
    }
    int next = index + 1 < two->count ? index + 1 : 0;
    struct clip once[2], twice[2], incident[2] = {
        {two->vertex[index], (uint8_t)i1, (uint8_t)index, 1, 0}, {two->vertex[next], (uint8_t)i1, (uint8_t)next, 1, 0}
    };
    v2 along = normalized(sub(own->vertex[i2], own->vertex[i1]));
    v2 tangent = on_body ? rotated(pose, along) : along, normal = {tangent.y, -tangent.x};
    v2 from = one->vertex[i1], to = one->vertex[i2];
    if (clip_segment(once, incident, negated(tangent), -dot(tangent, from) + TOTAL_RADIUS, i1) < 2) return;
    if (clip_segment(twice, once, tangent, dot(tangent, to) + TOTAL_RADIUS, i2) < 2) return;

    manifold->face_of_body = on_body;
    manifold->normal = (v2){along.y, -along.x};
    manifold->plane = scaled(0.5f, add(own->vertex[i1], own->vertex[i2]));
    for (int i = 0; i < 2; i++) {
        if (!(dot(normal, twice[i].v) - dot(normal, from) <= TOTAL_RADIUS)) continue;
        struct touch *touch = &manifold->touch[manifold->count++];
        touch->local = on_body ? twice[i].v : unplaced(pose, twice[i].v);
        touch->feature = feature_of(on_body ? swapped(twice[i]) : twice[i]);
    }
}

/* Recompute the touches, keeping impulses of those that persist; return whether there are any. */
static int update_manifold(
    struct manifold *manifold, const struct piece *piece, const struct polygon *shape, const struct polygon *body,
    struct pose pose
)
{
    struct manifold before = *manifold;
    (piece->edge ? collide_edge : collide_box)(manifold, &piece->polygon, shape, body, pose);
    for (int i = 0; i < manifold->count; i++) {
        struct touch *touch = &manifold->touch[i];
        touch->normal_impulse = touch->tangent_impulse = 0;
        for (int j = 0; j < before.count; j++) {
            if (before.touch[j].feature != touch->feature) continue;
            touch->normal_impulse = before.touch[j].normal_impulse;
            touch->tangent_impulse = before.touch[j].tangent_impulse;
            break;
        }
    }
    return manifold->count > 0;
}

/* Transform a polygon to the world frame. */
static void place_polygon(struct polygon *placed_, const struct polygon *shape, struct pose pose)
{
    placed_->count = shape->count;
    for (int i = 0; i < shape->count; i++) {
        placed_->vertex[i] = placed(pose, shape->vertex[i]);
        placed_->normal[i] = rotated(pose, shape->normal[i]);
    }
    placed_->centroid = placed(pose, shape->centroid);
}
