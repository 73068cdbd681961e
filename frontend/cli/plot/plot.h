/* rankc plot: training curves of metrics files (train --log) as an SVG picture. */
#ifndef FRONTEND_CLI_PLOT_H
#define FRONTEND_CLI_PLOT_H

#include "frontend/cli/cli.h"

/* Quantities, each in a panel of its own. */
enum plot_quantity { PLOT_LOSS, PLOT_NORM, PLOT_RATE, PLOT_SPEED, PLOT_QUANTITIES };

struct plot_point {
    int64_t step;
    double value; /* NaN: was not finite */
};

struct plot_series {
    VEC(struct plot_point) points;
};

/* A metrics file. */
struct plot_run {
    const char *name; /* as the user gave it */
    struct plot_series quantity[PLOT_QUANTITIES];
    struct plot_series evaluations; /* losses, for the panel of losses */
    bool tokens;                    /* the speed is in tokens per second, else samples */
};
struct plot_runs {
    VEC(struct plot_run) all;
};

/* Reads a metrics file: 0, or -1 after a diagnostic. A last line without its line break is being written, and left
 * out. */
int plot_read(struct plot_run *run, const char *path, struct cli *cli);

/* The picture, a complete SVG file. */
const char *plot_svg(const struct plot_runs *runs, struct arena *arena);

#endif
