/* The walker's five bodies and four joints: shapes, masses and anchors as in Box2D 2.3 (Catto).
 *
 * Sums and products follow Box2D's order, so that single precision rounds identically. */

#pragma once

#include "runtime/native.h"

#define SCALE 30.0 /* pixels per metre; Gymnasium's sizes are in pixels */
#define LEG_DOWN (-8 / SCALE)
#define LEG_WIDTH (8 / SCALE)
#define LEG_HEIGHT (34 / SCALE)
#define TERRAIN_STEP (14 / SCALE)
#define TERRAIN_HEIGHT (400 / SCALE / 4)
#define TERRAIN_STARTPAD 20
#define TERRAIN_GRASS 10

#define EPSILON 1.1920929e-7f
#define FAR 3.4028235e38f
#define LINEAR_SLOP 0.005f
#define PI_F 3.14159265359f
#define ANGULAR_SLOP (2.0f / 180.0f * PI_F)
#define POLYGON_RADIUS (2.0f * LINEAR_SLOP)
#define TOTAL_RADIUS (POLYGON_RADIUS + POLYGON_RADIUS) /* skins of two shapes */

enum { HULL, LEG_1, LOWER_1, LEG_2, LOWER_2, BODIES }; /* in Gymnasium's order of creation */
enum { HIP_1, KNEE_1, HIP_2, KNEE_2, JOINTS };

static const int JOINT_BODIES[JOINTS][2] = {{HULL, LEG_1}, {LEG_1, LOWER_1}, {HULL, LEG_2}, {LEG_2, LOWER_2}};

#define VERTICES 5 /* maximum */

typedef struct {
    float x, y;
} v2;

struct polygon {
    int count;
    v2 vertex[VERTICES], normal[VERTICES], centroid;
};

struct pose {
    v2 p;       /* origin */
    float s, c; /* sine and cosine of the angle */
};

struct model {
    struct polygon shape[BODIES];
    v2 centre[BODIES]; /* of mass, in the body's frame */
    float inverse_mass[BODIES], inverse_inertia[BODIES], friction[BODIES], reach[BODIES];
    v2 anchor[JOINTS][2]; /* from the centre of mass of either body */
};

INLINE v2 add(v2 a, v2 b) { return (v2){a.x + b.x, a.y + b.y}; }
INLINE v2 sub(v2 a, v2 b) { return (v2){a.x - b.x, a.y - b.y}; }
INLINE v2 scaled(float s, v2 a) { return (v2){s * a.x, s * a.y}; }
INLINE v2 negated(v2 a) { return (v2){-a.x, -a.y}; }
INLINE float dot(v2 a, v2 b) { return a.x * b.x + a.y * b.y; }
INLINE float cross(v2 a, v2 b) { return a.x * b.y - a.y * b.x; }
INLINE float length(v2 a) { return __builtin_sqrtf(a.x * a.x + a.y * a.y); }
INLINE float smaller(float a, float b) { return a < b ? a : b; }
INLINE float larger(float a, float b) { return a > b ? a : b; }
INLINE float clamped(float x, float low, float high) { return larger(low, smaller(x, high)); }
INLINE v2 rotated(struct pose q, v2 v) { return (v2){q.c * v.x - q.s * v.y, q.s * v.x + q.c * v.y}; }
INLINE v2 unrotated(struct pose q, v2 v) { return (v2){q.c * v.x + q.s * v.y, -q.s * v.x + q.c * v.y}; }
INLINE v2 placed(struct pose q, v2 v)
{
    return (v2){(q.c * v.x - q.s * v.y) + q.p.x, (q.s * v.x + q.c * v.y) + q.p.y};
}
INLINE v2 unplaced(struct pose q, v2 v) { return unrotated(q, sub(v, q.p)); }

INLINE v2 normalized(v2 a)
{
    float size = length(a);
    if (size < EPSILON) return a;
    return scaled(1.0f / size, a);
}

/* `sine_cosine` of lanes.h for one number. */
INLINE void sine_cosine_1(float x, float *sine, float *cosine)
{
    const double magic = 6755399441055744.0;
    union {
        double number;
        int64_t bits;
    } shifted = {x * 0x1.45f306dc9c883p-1 + magic};
    double r = x - (shifted.number - magic) * 0x1.921fb54442d18p0;
    double r2 = r * r, r3 = r * r2, r4 = r2 * r2;
    double s = (r + r3 * -0x1.555545995a603p-3) + (r3 * r2) * (0x1.1107605230bc4p-7 + r2 * -0x1.994eb3774cf24p-13);
    double c = ((1.0 + r2 * -0x1.ffffffd0c621cp-2) + r4 * 0x1.55553e1068f19p-5) +
               (r4 * r2) * (-0x1.6c087e89a359dp-10 + r2 * 0x1.99343027bf8c3p-16);
    double one = shifted.bits & 1 ? c : s, other = shifted.bits & 1 ? s : c;
    *sine = (float)(shifted.bits & 2 ? -one : one);
    *cosine = (float)(((shifted.bits & 3) + 1) & 2 ? -other : other);
}

/* Return a body's frame from its centre of mass and angle. */
INLINE struct pose pose_at(v2 middle, float angle, v2 centre)
{
    struct pose q;
    sine_cosine_1(angle, &q.s, &q.c);
    q.p = sub(middle, rotated(q, centre));
    return q;
}

static void set_normals(struct polygon *polygon)
{
    for (int i = 0; i < polygon->count; i++) {
        v2 edge = sub(polygon->vertex[i + 1 < polygon->count ? i + 1 : 0], polygon->vertex[i]);
        polygon->normal[i] = normalized((v2){edge.y, -edge.x});
    }
}

/* Vertices are anticlockwise and start with the lower of the rightmost ones. */
static void set_polygon(struct polygon *polygon, int count, const v2 *vertices)
{
    const float third = 1.0f / 3.0f;
    v2 centroid = {0, 0};
    float area = 0;
    polygon->count = count;
    for (int i = 0; i < count; i++) polygon->vertex[i] = vertices[i];
    set_normals(polygon);
    for (int i = 0; i < count; i++) {
        v2 one = vertices[i], other = vertices[i + 1 < count ? i + 1 : 0];
        float triangle = 0.5f * cross(one, other);
        area += triangle;
        centroid = add(centroid, scaled(triangle * third, add(one, other)));
    }
    polygon->centroid = scaled(1.0f / area, centroid);
}

static void set_box(struct polygon *polygon, float half_width, float half_height)
{
    const float w = half_width, h = half_height;
    *polygon = (struct polygon){
        .count = 4,
        .vertex = {{-w, -h}, {w, -h}, {w, h}, {-w, h}},
        .normal = {{0, -1}, {1, 0}, {0, 1}, {-1, 0}},
    };
}

static void set_mass(struct model *model, int body, float density)
{
    const struct polygon *shape = &model->shape[body];
    const float third = 1.0f / 3.0f;
    v2 middle = {0, 0}, centre = {0, 0};
    float area = 0, inertia = 0;
    for (int i = 0; i < shape->count; i++) middle = add(middle, shape->vertex[i]);
    middle = scaled(1.0f / (float)shape->count, middle);
    for (int i = 0; i < shape->count; i++) {
        v2 one = sub(shape->vertex[i], middle);
        v2 other = sub(shape->vertex[i + 1 < shape->count ? i + 1 : 0], middle);
        float twice = cross(one, other), triangle = 0.5f * twice;
        area += triangle;
        centre = add(centre, scaled(triangle * third, add(one, other)));
        float x2 = one.x * one.x + other.x * one.x + other.x * other.x;
        float y2 = one.y * one.y + other.y * one.y + other.y * other.y;
        inertia += (0.25f * third * twice) * (x2 + y2);
    }
    float mass = density * area;
    centre = scaled(1.0f / area, centre);
    v2 shifted = add(centre, middle);
    inertia = density * inertia + mass * (dot(shifted, shifted) - dot(centre, centre));
    model->inverse_mass[body] = 1.0f / mass;
    v2 local = scaled(model->inverse_mass[body], scaled(mass, shifted));
    model->centre[body] = local;
    model->inverse_inertia[body] = 1.0f / (inertia - mass * dot(local, local));
    model->reach[body] = 0;
    for (int i = 0; i < shape->count; i++)
        model->reach[body] = larger(model->reach[body], length(sub(shape->vertex[i], local)));
}

static void set_model(struct model *model)
{
    const v2 hull[] = {{(float)(34 / SCALE), (float)(-8 / SCALE)}, {(float)(34 / SCALE), (float)(1 / SCALE)},
                       {(float)(6 / SCALE), (float)(9 / SCALE)}, {(float)(-30 / SCALE), (float)(9 / SCALE)},
                       {(float)(-30 / SCALE), (float)(-8 / SCALE)}};
    const float ground_friction = 2.5f;
    set_polygon(&model->shape[HULL], 5, hull);
    set_mass(model, HULL, 5.0f);
    model->friction[HULL] = __builtin_sqrtf(ground_friction * 0.1f);
    for (int body = LEG_1; body < BODIES; body++) {
        int lower = body == LOWER_1 || body == LOWER_2;
        set_box(&model->shape[body], (float)((lower ? 0.8 * LEG_WIDTH : LEG_WIDTH) / 2), (float)(LEG_HEIGHT / 2));
        set_mass(model, body, 1.0f);
        model->friction[body] = __builtin_sqrtf(ground_friction * 0.2f);
    }
    for (int joint = 0; joint < JOINTS; joint++) {
        int hip = joint == HIP_1 || joint == HIP_2;
        v2 above = {0, (float)(hip ? LEG_DOWN : -LEG_HEIGHT / 2)}, below = {0, (float)(LEG_HEIGHT / 2)};
        model->anchor[joint][0] = sub(above, model->centre[JOINT_BODIES[joint][0]]);
        model->anchor[joint][1] = sub(below, model->centre[JOINT_BODIES[joint][1]]);
    }
}
