/* Determinants, for C and CUDA; see determinant.h. It is included once for each type. Parameters: the type T, and NAME
 * of a function of it; LOCAL, what stands before a function; EACH(i, count), a loop whose iterations the threads that
 * have a matrix share; JOIN(), where they wait for each other. */

/* Exchanges row k of lu with the row below it that has the largest element in column k: -1, or 1 if that is row k. All
 * threads find the same row. */
LOCAL T NAME(choose_pivot)(T *lu, T *order, int64_t n, int64_t k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; i++)
        if (fabs(lu[i * n + k]) > fabs(lu[best * n + k])) best = i;
    JOIN();
    if (best == k) return 1;
    EACH(j, n + 1) {
        T *own = j < n ? lu + k * n + j : order + k, *other = j < n ? lu + best * n + j : order + best;
        const T element = *own;
        *own = *other;
        *other = element;
    }
    JOIN();
    return -1;
}

/* Factorises x into L, whose diagonal is 1, below the diagonal of lu, and U. Row order[i] of x is row i of LU. Returns
 * the determinant. floor: what a pivot of 0 becomes. */
LOCAL T NAME(factorise)(T *lu, T *order, const T *x, int64_t n, T floor) {
    T det = 1;
    EACH(j, n * n) lu[j] = x[j];
    EACH(i, n) order[i] = (T)i;
    JOIN();
    for (int64_t k = 0; k < n; k++) {
        det *= NAME(choose_pivot)(lu, order, n, k);
        T *row = lu + k * n;
        const T pivot = row[k] == 0 ? floor : row[k];
        det *= pivot;
        JOIN();
        EACH(i, n - k) {
            if (i == 0) row[k] = pivot;
            T *below = row + i * n;
            if (i == 0 || below[k] == 0) continue;
            const T factor = below[k] /= pivot;
            for (int64_t j = k + 1; j < n; j++) below[j] -= factor * row[j];
        }
        JOIN();
    }
    return det;
}

/* Column j of dx = scale x^-T = scale P^T L^-T U^-T; row i of P dx is row order[i] of dx. */
LOCAL void NAME(invert_column)(T *dx, const T *lu, const T *order, T scale, int64_t n, int64_t j) {
    for (int64_t i = 0; i < n; i++) {
        T element = i == j ? scale : (T)0;
        for (int64_t k = j; k < i; k++) element -= lu[k * n + i] * dx[(int64_t)order[k] * n + j];
        dx[(int64_t)order[i] * n + j] = i < j ? (T)0 : element / lu[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        T element = dx[(int64_t)order[i] * n + j];
        for (int64_t k = i + 1; k < n; k++) element -= lu[k * n + i] * dx[(int64_t)order[k] * n + j];
        dx[(int64_t)order[i] * n + j] = element;
    }
}

/* The determinant of a matrix. */
LOCAL T NAME(det_of)(T *lu, const T *x, int64_t n) {
    return NAME(factorise)(lu, lu + n * n, x, n, (T)0);
}

/* Its gradient, for dy. rounding: the error of 1. */
LOCAL void NAME(det_grad_of)(T *dx, T dy, T *lu, const T *x, int64_t n, T rounding) {
    T *order = lu + n * n, most = 0;
    for (int64_t j = 0; j < n * n; j++) most = fabs(x[j]) > most ? (T)fabs(x[j]) : most;
    const T det = NAME(factorise)(lu, order, x, n, most > 0 ? most * rounding : rounding);
    EACH(j, n) NAME(invert_column)(dx, lu, order, dy * det, n, j);
}
