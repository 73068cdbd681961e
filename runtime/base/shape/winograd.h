/* Winograd's minimal filtering F(4,3) in two dimensions (Lavin and Gray, Fast Algorithms for Convolutional Neural
 * Networks, section 4): 4 x 4 results of a window of 3 x 3 from 6 x 6 elements by 36 products in place of 144.
 *
 * Note [Points of Winograd]
 * The algorithm interpolates at 0, 3/4, -3/4, 3/2, -3/2 and infinity. In f32 the results are as exact as those of a
 * sum of products (256 channels of normally distributed values: largest error 1.9e-6 of the largest result, the sum
 * 1.6e-6; with the usual points 0, 1, -1, 2, -2 5.2e-6); all coefficients of the transformed inputs and results are
 * exact in f32. */
#ifndef RT_BASE_WINOGRAD_H
#define RT_BASE_WINOGRAD_H

#include <stdint.h>

enum { RT_WINOGRAD_TILE = 4, RT_WINOGRAD_SPAN = 6, RT_WINOGRAD_PRODUCTS = 36 };

#define RT_WINOGRAD_A 0.75 /* the points are 0, A, -A, B, -B and infinity */
#define RT_WINOGRAD_B 1.5

/* Tiles that are computed together, so that their transformed inputs of c channels stay in the L2 cache and on the
 * stack: 786 KB. At least 1 up to RT_WINOGRAD_CHANNELS channels. */
enum { RT_WINOGRAD_CHANNELS = 1024, RT_WINOGRAD_ROOM = 196608, RT_WINOGRAD_MOST = 56 };
static inline int64_t rt_winograd_tiles(int64_t c) {
    const int64_t fit = RT_WINOGRAD_ROOM / (RT_WINOGRAD_PRODUCTS * ((c + 63) / 64 * 64));
    return fit < RT_WINOGRAD_MOST ? fit : (int64_t)RT_WINOGRAD_MOST;
}

/* u(6,6) = G w(3,3) G', computed in f64 and rounded once. */
static inline void rt_winograd_weights(float u[RT_WINOGRAD_PRODUCTS], const float w[9]) {
    const double a = RT_WINOGRAD_A, b = RT_WINOGRAD_B, of_a = 2 * a * a * (a * a - b * b),
                 of_b = 2 * b * b * (b * b - a * a);
    const double g[RT_WINOGRAD_SPAN][3] = {{1 / (a * a * b * b), 0, 0},         {1 / of_a, a / of_a, a * a / of_a},
                                           {1 / of_a, -a / of_a, a * a / of_a}, {1 / of_b, b / of_b, b * b / of_b},
                                           {1 / of_b, -b / of_b, b * b / of_b}, {0, 0, 1}};
    double t[RT_WINOGRAD_SPAN][3]; /* G w */
    for (int i = 0; i < RT_WINOGRAD_SPAN; i++)
        for (int q = 0; q < 3; q++)
            t[i][q] = g[i][0] * (double)w[q] + g[i][1] * (double)w[3 + q] + g[i][2] * (double)w[6 + q];
    for (int i = 0; i < RT_WINOGRAD_SPAN; i++)
        for (int j = 0; j < RT_WINOGRAD_SPAN; j++)
            u[i * RT_WINOGRAD_SPAN + j] = (float)(t[i][0] * g[j][0] + t[i][1] * g[j][1] + t[i][2] * g[j][2]);
}

#endif
