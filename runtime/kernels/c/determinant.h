/* Determinants of square matrices: part of kernels.h. */
#ifndef RT_KERNELS_C_DETERMINANT_H
#define RT_KERNELS_C_DETERMINANT_H

#include <stdint.h>

#include "../../base/scratch.h"
#include "lists.h"

/* det       determinants y(count) of matrices x(count,n,n), by LU factorisation with partial pivoting
 * det_grad  the gradient dx(count,n,n) for dy(count): dy times the cofactors of x, which are det(x) x^-T. A pivot of 0
 *           is replaced by a number of the size of the rounding error, so that singular matrices have their cofactors,
 *           too.
 * workspace: RT_DET_WORKSPACE(n) elements per matrix (base/scratch.h). */
#define RT_DECLARE_DET(T, s)                                                                                           \
    void rt_det_##s(T *y, const T *x, void *workspace, int64_t count, int64_t n);                                      \
    void rt_det_grad_##s(T *dx, const T *dy, const T *x, void *workspace, int64_t count, int64_t n);

RT_FLOATS(RT_DECLARE_DET)

#endif
