/* The walker's lidar: ten rays forward and down from the hull, cast together in SIMD lanes. */

#pragma once

#include "physics/pairs.h"

#define RAYS 10

#define RAY_VECTORS ((RAYS + LANES - 1) / LANES) /* lanes are rays here */

/* 160 / 30 m times sin and cos of 0.15 i, as computed by Python. */
static const double RAY_RIGHT[RAYS] = {
    0.0, 0x1.9810d37d53c2dp-1, 0x1.937bcc7a3a2eep+0, 0x1.28efbc950d96ep+1, 0x1.81766ca31ac76p+1,
    0x1.d15501e54bebcp+1, 0x1.0b6026593c580p+2, 0x1.281499179f72bp+2, 0x1.3e22d16bc392dp+2, 0x1.4d0c020a6967ep+2,
};
static const double RAY_DOWN[RAYS] = {
    0x1.5555555555555p+2, 0x1.5180229949b7ap+2, 0x1.46169381f5bd1p+2, 0x1.335a44b5d7f73p+2, 0x1.19b6ed2dae763p+2,
    0x1.f37fe5dc6d6d4p+1, 0x1.a85a3736e82d0p+1, 0x1.53acd7db04617p+1, 0x1.eebd3704f4d1ap+0, 0x1.2b0462a392a98p+0,
};

INLINE vf meet_edge(vf fraction, vf dx, vf dy, v2 origin, v2 v1, v2 edge, float square, v2 normal)
{
    float ahead = dot(normal, sub(v1, origin));
    vf towards = normal.x * dx + normal.y * dy;
    vf t = ahead / towards;
    vf s = ((origin.x + t * dx - v1.x) * edge.x + (origin.y + t * dy - v1.y) * edge.y) / square;
    return pick((towards != 0) & (t >= 0) & (t < fraction) & (s >= 0) & (s <= 1), t, fraction);
}

INLINE vf meet_box(vf fraction, vf dx, vf dy, v2 origin, const struct polygon *box)
{
    vf enters = splat(0), leaves = fraction;
    vi entered = {0}, missed = {0};
    for (int i = 0; i < box->count; i++) {
        const v2 n = box->normal[i];
        float ahead = dot(n, sub(box->vertex[i], origin));
        vf towards = n.x * dx + n.y * dy;
        vi in = (towards < 0) & (ahead < enters * towards), out = (towards > 0) & (ahead < leaves * towards);
        missed |= (towards == 0) & splat_i(-(ahead < 0));
        enters = pick(in, ahead / towards, enters);
        leaves = pick(out, ahead / towards, leaves);
        entered |= in;
        missed |= leaves < enters;
    }
    return pick(entered & ~missed, enters, fraction);
}

/* Return the distance of the ground along each ray, as a fraction of its range. */
static void cast_rays(const struct scene *scene, v2 origin, float fraction[RAYS])
{
    const struct ground *ground = &scene->ground;
    const float step = (float)TERRAIN_STEP, range = (float)RAY_RIGHT[RAYS - 1];
    vf dx[RAY_VECTORS] = {0}, dy[RAY_VECTORS] = {0}, found[RAY_VECTORS];
    for (int i = 0; i < RAYS; i++) {
        dx[i / LANES][i % LANES] = (float)((double)origin.x + RAY_RIGHT[i]) - origin.x;
        dy[i / LANES][i % LANES] = (float)((double)origin.y - RAY_DOWN[i]) - origin.y;
    }
    for (int v = 0; v < RAY_VECTORS; v++) found[v] = splat(1);
    /* Points are a step apart, except the last one of a pit, which lies up to a step further left. */
    int first = (int)clamped(origin.x / step - 2.0f, 0, (float)ground->length);
    int last = (int)clamped((origin.x + range) / step + 3.0f, 0, (float)ground->length);
    for (int i = first; i < last && i < ground->length - 1; i++) {
        v2 v1 = {ground->x[i], ground->y[i]}, edge = sub((v2){ground->x[i + 1], ground->y[i + 1]}, v1);
        float square = dot(edge, edge);
        for (int v = 0; v < RAY_VECTORS; v++)
            found[v] = meet_edge(found[v], dx[v], dy[v], origin, v1, edge, square, scene->normal[i]);
    }
    for (int i = 0; i < ground->boxes; i++) {
        const struct box *box = &ground->box[i];
        if (box->corner[1][0] < origin.x || box->corner[0][0] > origin.x + range + step) continue;
        struct piece piece;
        get_piece(&piece, scene, i);
        for (int v = 0; v < RAY_VECTORS; v++) found[v] = meet_box(found[v], dx[v], dy[v], origin, &piece.polygon);
    }
    for (int i = 0; i < RAYS; i++) fraction[i] = found[i / LANES][i % LANES];
}
