/* Dimension annotations of operators that sample images at points (runtime/base/shape/sampling.h), and their
 * derivatives. Images, channels and points may be divided; every point may need all of its plane. */
#include "runtime/base/shape/sampling.h"

#include <string.h>

#include "ir/ops/grad.h"
#include "ir/ops/ops.h"

enum { SPATIAL = 2 }; /* the first spatial dimension */

static bool is_one_of(const struct node *node, const char *key, int n, const char *const *names) {
    for (int i = 0; i < n; i++)
        if (strcmp(attr_text(node, key, ""), names[i]) == 0) return true;
    return false;
}

static int check_sample(struct dims *dims, const struct node *node, const char **why) {
    static const char *const modes[] = {"nearest", "linear", "cubic"}, *const paddings[] = {"zeros", "border",
                                                                                            "reflection"};
    if (is_one_of(node, "mode", 3, modes) && is_one_of(node, "padding", 3, paddings)) return 0;
    return refuse(dims, why, "attribute mode or padding is unknown");
}

/* The factors of a sample's operands: n and c of the image, the k spatial dimensions i.., and those p.. of the points,
 * of which there are `np`. */
struct factors {
    int n, c, i, p, k, nspatial, np;
};

static void bind_image(struct operand *operand, const struct factors *f) {
    operand->ndim = SPATIAL + f->nspatial;
    dims_set(operand, 0, f->n);
    dims_set(operand, 1, f->c);
    for (int d = 0; d < f->nspatial; d++) dims_set(operand, SPATIAL + d, f->i + d);
}

static void bind_points(struct operand *operand, const struct factors *f) {
    operand->ndim = f->np + 2;
    dims_set(operand, 0, f->n);
    for (int d = 0; d < f->np; d++) dims_set(operand, 1 + d, f->p + d);
    dims_set(operand, 1 + f->np, f->k);
}

/* (n, c, p..) */
static void bind_samples(struct operand *operand, const struct factors *f) {
    operand->ndim = SPATIAL + f->np;
    dims_set(operand, 0, f->n);
    dims_set(operand, 1, f->c);
    for (int d = 0; d < f->np; d++) dims_set(operand, SPATIAL + d, f->p + d);
}

/* Checks the shapes of all inputs against the annotation. */
static int check_shapes(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    for (int i = 0; i < node->ninputs; i++) {
        const struct tensor *x = input(graph, node, i);
        if (!dims_fits(dims, i, x))
            return refuse(dims, why, "%s does not fit the other inputs", tensor_type(dims->arena, x));
    }
    return 0;
}

/* The operands, by number. */
struct sample_operands {
    int image, points, samples;
};

/* Binds the operands to images of c channels and the spatial extents `size`. */
static int bind_sample(struct dims *dims, const struct graph *graph, const struct node *node,
                       const struct sample_operands *at, int64_t c, int nspatial, const int64_t *size,
                       enum factor_kind channels, enum factor_kind positions, const char **why) {
    const struct tensor *points = input(graph, node, at->points); /* (n, p.., k) */
    const int np = points->ndim - 2;
    if (nspatial < 1 || nspatial > RT_SAMPLE_DIMS || np < 1 || points->dims[points->ndim - 1] != nspatial)
        return refuse(dims, why, "points %s do not fit images of %d dimension(s)", tensor_type(dims->arena, points),
                      nspatial);
    struct factors f = {.nspatial = nspatial, .np = np};
    f.n = dims_factor(dims, "n", -1, points->dims[0], FACTOR_PASS);
    f.c = dims_factor(dims, "c", -1, c, channels);
    f.i = dims->nfactors;
    for (int d = 0; d < nspatial; d++) dims_factor(dims, "i", d, size[d], FACTOR_WHOLE);
    f.p = dims->nfactors;
    for (int d = 0; d < np; d++) dims_factor(dims, "p", d, points->dims[1 + d], positions);
    f.k = dims_factor(dims, "k", -1, nspatial, FACTOR_WHOLE);
    bind_image(&dims->operand[at->image], &f);
    bind_points(&dims->operand[at->points], &f);
    bind_samples(&dims->operand[at->samples], &f);
    if (channels == FACTOR_SUM) dims->operand[dims->ninputs] = dims->operand[at->points];
    dims->points = (double)c * (double)tensor_elements(points);
    return check_shapes(dims, graph, node, why);
}

/* x and points -> (n, c, p..); and dy (n, c, p..), x and points -> (n, p.., k) */
DIMS_FN(dims_sample_images) {
    static const struct sample_operands forward = {0, 1, 2}, backward = {1, 2, 0};
    const bool gradient = node->op->id == OP_SamplePointsGrad;
    const struct tensor *x = input(graph, node, gradient);
    if (check_sample(dims, node, why) < 0) return -1;
    if (x->ndim <= SPATIAL) return refuse(dims, why, "an image has at least 3 dimensions");
    return bind_sample(dims, graph, node, gradient ? &backward : &forward, x->dims[1], x->ndim - SPATIAL,
                       x->dims + SPATIAL, gradient ? FACTOR_SUM : FACTOR_PASS, FACTOR_PASS, why);
}

/* dy (n, c, p..) and points -> (n, c, size..) */
DIMS_FN(dims_sample_grad) {
    static const struct sample_operands at = {2, 1, 0};
    const struct tensor *dy = input(graph, node, 0);
    int n;
    const int64_t *size = attr_ints(node, "spatial", &n);
    if (check_sample(dims, node, why) < 0) return -1;
    if (dy->ndim <= SPATIAL || n > RT_SAMPLE_DIMS) return refuse(dims, why, "needs attribute spatial");
    return bind_sample(dims, graph, node, &at, dy->dims[1], n, size, FACTOR_PASS, FACTOR_SUM, why);
}

static int check_rois(struct dims *dims, const struct node *node, const struct tensor *rois, const char **why) {
    static const char *const modes[] = {"avg", "max", "bins"};
    if (!is_one_of(node, "mode", 3, modes)) return refuse(dims, why, "attribute mode is unknown");
    if (rois->ndim != 2 || rois->dims[1] != 4) return refuse(dims, why, "a region needs 4 coordinates");
    if (attr_int(node, "rows", 0) < 1 || attr_int(node, "columns", 0) < 1 || attr_int(node, "samples", 0) < 0)
        return refuse(dims, why, "needs attributes rows and columns of at least 1, and samples of at least 0");
    return 0;
}

/* Binds n c i.. to the images, r and the corners to the regions, and (r, c, rows, columns) to the bins. */
static int bind_rois(struct dims *dims, const struct graph *graph, const struct node *node, const int64_t *image,
                     enum factor_kind regions, int images, int bins, const char **why) {
    const struct tensor *rois = input(graph, node, 1);
    struct operand *x = &dims->operand[images], *y = &dims->operand[bins];
    if (check_rois(dims, node, rois, why) < 0) return -1;
    const int n = dims_factor(dims, "n", -1, image[0], FACTOR_WHOLE),
              c = dims_factor(dims, "c", -1, image[1], FACTOR_PASS);
    const int h = dims_factor(dims, "i", 0, image[2], FACTOR_WHOLE),
              w = dims_factor(dims, "i", 1, image[3], FACTOR_WHOLE);
    const int r = dims_factor(dims, "r", -1, rois->dims[0], regions), k = dims_factor(dims, "k", -1, 4, FACTOR_WHOLE);
    const int rows = dims_factor(dims, "o", 0, attr_int(node, "rows", 0), FACTOR_WHOLE),
              columns = dims_factor(dims, "o", 1, attr_int(node, "columns", 0), FACTOR_WHOLE);
    const int of_x[] = {n, c, h, w}, of_y[] = {r, c, rows, columns};
    x->ndim = y->ndim = 4;
    for (int d = 0; d < 4; d++) {
        dims_set(x, d, of_x[d]);
        dims_set(y, d, of_y[d]);
    }
    dims->operand[1].ndim = 2;
    dims_set(&dims->operand[1], 0, r);
    dims_set(&dims->operand[1], 1, k);
    dims->operand[2].ndim = 1;
    dims_set(&dims->operand[2], 0, r);
    if (node->ninputs > 3) dims->operand[3] = *x;
    dims->points = (double)rois->dims[0] * (double)image[1] * (double)attr_int(node, "rows", 0) *
                   (double)attr_int(node, "columns", 0);
    return check_shapes(dims, graph, node, why);
}

DIMS_FN(dims_roi_pool) {
    const struct tensor *x = input(graph, node, 0);
    if (x->ndim != 4) return refuse(dims, why, "images have 4 dimensions");
    return bind_rois(dims, graph, node, x->dims, FACTOR_PASS, 0, 3, why);
}

DIMS_FN(dims_roi_pool_grad) {
    int n;
    const int64_t *size = attr_ints(node, "spatial", &n);
    const struct tensor *dy = input(graph, node, 0);
    if (n != 3 || dy->ndim != 4) return refuse(dims, why, "needs attribute spatial of 3 numbers");
    const int64_t image[] = {size[0], dy->dims[1], size[1], size[2]};
    const bool largest = strcmp(attr_text(node, "mode", ""), "avg") != 0;
    if (largest != (node->ninputs > 3)) return refuse(dims, why, "needs x, unless mode is \"avg\"");
    return bind_rois(dims, graph, node, image, FACTOR_SUM, node->ninputs, 0, why);
}

DIMS_FN(dims_suppress) {
    if (dims_bind_text(dims, "n b^ x^, n c k^,  -> n c k^", graph, node, why) < 0) return -1;
    if (dims_extent(dims, 0, 2) != 4) return refuse(dims, why, "a box needs 4 coordinates");
    return 0;
}

GRAD(grad_sample) {
    const struct tensor x = *gradient_input(gradient, 0);
    const int *in = gradient->node.inputs, dy = gradient->dy;
    const struct attr size = attr_of_ints("spatial", x.ndim - SPATIAL, x.dims + SPATIAL);
    if (gradient->wanted[0] &&
        (gradient->dx[0] = gradient_like(gradient, OP_SampleGrad, 2, (int[]){dy, in[1]}, &size)) < 0)
        return -1;
    if (gradient->wanted[1] &&
        (gradient->dx[1] = gradient_like(gradient, OP_SamplePointsGrad, 3, (int[]){dy, in[0], in[1]}, NULL)) < 0)
        return -1;
    return 0;
}

/* The regions themselves have no gradient, as in torchvision. */
GRAD(grad_roi_pool) {
    const struct tensor x = *gradient_input(gradient, 0);
    const int *in = gradient->node.inputs;
    const struct attr size = attr_of_ints("spatial", 3, (int64_t[]){x.dims[0], x.dims[2], x.dims[3]});
    const bool largest = strcmp(attr_text(&gradient->node, "mode", ""), "avg") != 0;
    if (!gradient->wanted[0]) return 0;
    return gradient->dx[0] =
               gradient_like(gradient, OP_RoiPoolGrad, 3 + largest, (int[]){gradient->dy, in[1], in[2], in[0]}, &size);
}
