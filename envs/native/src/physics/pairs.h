/* Candidate pairs of bodies and pieces of ground, as in Box2D's broad phase.
 *
 * Each body has a fat AABB; pairs are searched again only when the body leaves it. The order of pairs affects the
 * solver and is Box2D's: the newest first. */

#pragma once

#include "walker/ground.h"
#include "impact.h"

#define PAIRS 32 /* maximum per body; valid grounds have fewer */
#define EXTENSION 0.1f

struct bounds {
    v2 low, high;
};

struct pair {
    int32_t piece; /* index of a box, or number of boxes + index of an edge */
    int32_t touching;
    struct manifold manifold;
    /* During one step: */
    float impact; /* time as a fraction of the step, if known */
    int32_t known, impacts, enabled;
};

struct near {
    int32_t count;
    struct pair pair[PAIRS]; /* newest last */
};

struct scene {
    struct ground ground;
    v2 *normal; /* [length] of each edge */
    int kind;   /* GROUND_... */
};

INLINE int pieces_of(const struct scene *scene) { return scene->ground.boxes + scene->ground.length - 1; }

static void get_piece(struct piece *piece, const struct scene *scene, int index)
{
    const struct ground *ground = &scene->ground;
    struct polygon *polygon = &piece->polygon;
    piece->edge = index >= ground->boxes;
    if (piece->edge) {
        int i = index - ground->boxes;
        polygon->count = 2;
        polygon->vertex[0] = (v2){ground->x[i], ground->y[i]};
        polygon->vertex[1] = (v2){ground->x[i + 1], ground->y[i + 1]};
        polygon->normal[0] = scene->normal[i];
        return;
    }
    /* Gymnasium's boxes are convex hulls, whose vertices start at the right; those of encodings are Box2D boxes. */
    int first = scene->kind == GROUND_HARDCORE;
    v2 corner[CORNERS];
    for (int i = 0; i < CORNERS; i++) {
        const float *at = ground->box[index].corner[(i + first) % CORNERS];
        corner[i] = (v2){at[0], at[1]};
    }
    if (first) {
        set_polygon(polygon, CORNERS, corner);
        return;
    }
    *polygon = (struct polygon){.count = CORNERS, .normal = {{0, -1}, {1, 0}, {0, 1}, {-1, 0}}};
    for (int i = 0; i < CORNERS; i++) polygon->vertex[i] = corner[i];
    polygon->centroid = scaled(0.5f, add(corner[0], corner[2]));
}

static struct bounds bounds_of_piece(const struct scene *scene, int index)
{
    const struct ground *ground = &scene->ground;
    v2 a, b;
    if (index >= ground->boxes) {
        int i = index - ground->boxes;
        a = (v2){ground->x[i], ground->y[i]}, b = (v2){ground->x[i + 1], ground->y[i + 1]};
    } else {
        const struct box *box = &ground->box[index];
        a = (v2){box->corner[0][0], box->corner[0][1]}, b = (v2){box->corner[2][0], box->corner[2][1]};
    }
    const float skin = POLYGON_RADIUS;
    return (struct bounds){{smaller(a.x, b.x) - skin - EXTENSION, smaller(a.y, b.y) - skin - EXTENSION},
                           {larger(a.x, b.x) + skin + EXTENSION, larger(a.y, b.y) + skin + EXTENSION}};
}

INLINE int overlap(struct bounds a, struct bounds b)
{
    return !(b.low.x - a.high.x > 0 || b.low.y - a.high.y > 0 || a.low.x - b.high.x > 0 || a.low.y - b.high.y > 0);
}

/* Recompute the fat AABB if the body's AABB (here without skin) has left it; return whether it had. */
INLINE int widen_bounds(struct bounds *around, v2 low, v2 high, v2 shift)
{
    const float skin = POLYGON_RADIUS;
    low = (v2){low.x - skin, low.y - skin}, high = (v2){high.x + skin, high.y + skin};
    if (around->low.x <= low.x && around->low.y <= low.y && high.x <= around->high.x && high.y <= around->high.y) return 0;
    around->low = (v2){low.x - EXTENSION, low.y - EXTENSION};
    around->high = (v2){high.x + EXTENSION, high.y + EXTENSION};
    v2 ahead = scaled(2.0f, shift);
    *(ahead.x < 0 ? &around->low.x : &around->high.x) += ahead.x;
    *(ahead.y < 0 ? &around->low.y : &around->high.y) += ahead.y;
    return 1;
}

static void add_near(struct near *near, const struct scene *scene, int piece, struct bounds around)
{
    if (near->count == PAIRS || !overlap(around, bounds_of_piece(scene, piece))) return;
    for (int i = 0; i < near->count; i++)
        if (near->pair[i].piece == piece) return;
    near->pair[near->count++] = (struct pair){.piece = piece, .enabled = 1};
}

/* Find pieces that overlap a changed fat AABB. */
static void find_near(struct near *near, const struct scene *scene, struct bounds around)
{
    const struct ground *ground = &scene->ground;
    for (int i = 0; i < ground->boxes; i++) add_near(near, scene, i, around);
    /* Points are a step apart, except the last one of a pit, which lies up to a step further left. */
    const float step = (float)TERRAIN_STEP;
    int first = (int)clamped((around.low.x - EXTENSION) / step - 3.0f, 0, (float)ground->length);
    int last = (int)clamped((around.high.x + EXTENSION) / step + 3.0f, 0, (float)ground->length);
    for (int i = first; i < last && i < ground->length - 1; i++) add_near(near, scene, ground->boxes + i, around);
}

/* Contacts of a body that began or ended. */
struct events {
    int began;            /* whether any began */
    int changed, touches; /* whether there were events; whether the last one began a contact */
};

INLINE void record_touch(struct events *events, int was, int is)
{
    if (was == is) return;
    events->began |= is;
    events->touches = is, events->changed = 1;
}

/* Remove pairs that no longer overlap, and update the manifolds of the others. */
static void update_near(
    struct near *near, const struct scene *scene, struct bounds around, const struct polygon *shape,
    const struct polygon *body, struct pose pose, struct events *events
)
{
    int kept[PAIRS], count = 0;
    for (int i = near->count - 1; i >= 0; i--) {
        struct pair *pair = &near->pair[i];
        kept[i] = overlap(around, bounds_of_piece(scene, pair->piece));
        if (!kept[i]) {
            record_touch(events, pair->touching, 0);
            continue;
        }
        struct piece piece;
        get_piece(&piece, scene, pair->piece);
        int was = pair->touching;
        pair->enabled = 1;
        pair->touching = update_manifold(&pair->manifold, &piece, shape, body, pose);
        record_touch(events, was, pair->touching);
    }
    for (int i = 0; i < near->count; i++) {
        if (!kept[i]) continue;
        if (count != i) near->pair[count] = near->pair[i];
        count++;
    }
    near->count = count;
}
