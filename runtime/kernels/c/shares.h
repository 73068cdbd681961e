/* How threads divide a product whose right operand lies in panels: Note [Sharing out products] in product.c. */
#ifndef RT_KERNELS_C_SHARES_H
#define RT_KERNELS_C_SHARES_H

#include "../gemm.h"

#include <stdint.h>

/* y(m,n) in rows x columns blocks, of which those that follow each other are neighbours. */
struct rt_panel_shares {
    int64_t m, n;
    int64_t rows, columns;
};

/* threads: of the caller; 1 for work that is too little for more. */
struct rt_panel_shares rt_share_panels(int64_t m, int64_t k, int64_t n, int64_t threads);
/* Block number `block`, below rows x columns, whose columns begin at a panel. It may be empty. */
struct rt_block rt_share_at(const struct rt_panel_shares *shares, int64_t block);

#endif
