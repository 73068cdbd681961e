/* Sampling of images at points: what the compiler and the kernels of operators Sample, RoiPool and their gradients
 * share. */
#ifndef RT_BASE_SAMPLING_H
#define RT_BASE_SAMPLING_H

#include <stdint.h>

#define RT_SAMPLE_DIMS 3 /* spatial dimensions of an image, at most */

enum rt_sample_mode { RT_SAMPLE_NEAREST, RT_SAMPLE_LINEAR, RT_SAMPLE_CUBIC };
enum rt_sample_padding { RT_SAMPLE_ZEROS, RT_SAMPLE_BORDER, RT_SAMPLE_REFLECTION };

/* What an element of a region's bin is: the mean or the largest of interpolated samples (RoiAlign), or the largest of
 * the elements that lie in it (MaxRoiPool). */
enum rt_roi_mode { RT_ROI_AVG, RT_ROI_MAX, RT_ROI_BINS };

struct rt_roi {
    enum rt_roi_mode mode;
    int64_t n, c, h, w, r, rows, columns; /* images, channels, extents; regions, and bins of each */
    int64_t samples;                      /* per bin and dimension; 0: as many as the bin has elements */
    double scale, shift;                  /* a region's coordinate x is x scale - shift */
};

#endif
