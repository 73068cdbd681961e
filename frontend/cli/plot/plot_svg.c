/* The picture: a panel per quantity, one below the other over the same steps, and a legend of the runs.
 *
 * Note [Gaps]
 * A line is interrupted where values are not finite, which a mark on the axis shows, and where steps are missing: where
 * the step number falls, or rises by more than twice the usual distance, as after a resume from elsewhere. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/text/tmpl.h"
#include "frontend/cli/plot/plot.h"

/* In units of the picture. */
enum {
    WIDTH = 800,
    LEFT = 76,
    RIGHT = 16,
    TOP = 28,    /* of a panel: room for its title */
    PANEL = 160, /* height of a panel's curves */
    BELOW = 14,
    FOOT = 36, /* below the last panel: numbers of steps */
    LEGEND = 20,
    COLOURS = 8,
    COLUMNS = WIDTH - LEFT - RIGHT
};

struct range {
    double low, high;
};

struct panel {
    const struct plot_runs *runs;
    enum plot_quantity quantity;
    struct range steps, values;
    double top; /* of its curves */
};

/* Ranges */

static void widen(struct range *range, double value) {
    if (!isfinite(value)) return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

static const struct range nothing = {INFINITY, -INFINITY};

/* With a margin; a range of one value, or of none, gets an extent. */
static struct range with_margin(struct range range) {
    if (range.low > range.high) return (struct range){0, 1};
    const double margin = range.low < range.high ? range.high / 25 - range.low / 25
                          : range.low == 0       ? 1
                                                 : fabs(range.low) / 2;
    return (struct range){fmax(range.low - margin, -DBL_MAX), fmin(range.high + margin, DBL_MAX)};
}

/* Place of a value, 0 to 1. Halves, because the extent itself may be infinite. */
static double place_of(const struct range *range, double value) {
    return (value / 2 - range->low / 2) / (range->high / 2 - range->low / 2);
}

/* The distance of about four marks: 1, 2 or 5 times a power of ten. */
static double mark_distance(const struct range *range, double marks) {
    const double raw = range->high / marks - range->low / marks, unit = pow(10, floor(log10(raw))), n = raw / unit;
    return unit * (n <= 1 ? 1 : n <= 2 ? 2 : n <= 5 ? 5 : 10);
}

static void widen_by(struct range *steps, struct range *values, const struct plot_series *series) {
    for (int i = 0; i < series->points.n; i++) {
        widen(steps, (double)series->points.at[i].step);
        widen(values, series->points.at[i].value);
    }
}

/* The evaluations of a run are in the panel of losses. */
static bool has_points(const struct plot_runs *runs, enum plot_quantity quantity) {
    for (int r = 0; r < runs->all.n; r++)
        if (runs->all.at[r].quantity[quantity].points.n ||
            (quantity == PLOT_LOSS && runs->all.at[r].evaluations.points.n))
            return true;
    return false;
}

/* Text */

static void put_escaped(struct strbuf *out, const char *text) {
    for (const char *c = str_escape(out->arena, text, strlen(text), 90); *c; c++) switch (*c) {
        case '&': strbuf_puts(out, "&amp;"); break;
        case '<': strbuf_puts(out, "&lt;"); break;
        case '>': strbuf_puts(out, "&gt;"); break;
        case '"': strbuf_puts(out, "&quot;"); break;
        default: strbuf_putc(out, *c);
        }
}

/* Further runs than there are colours are dashed. */
static void put_colour(struct strbuf *out, int run) {
    strbuf_printf(out, "style=\"stroke: var(--c%d)", run % COLOURS);
    if (run >= COLOURS) strbuf_printf(out, "; stroke-dasharray: %d 3", 2 + 3 * (run / COLOURS));
    strbuf_puts(out, "\"");
}

/* Curves */

static double x_of(const struct panel *panel, int64_t step) {
    return LEFT + COLUMNS * place_of(&panel->steps, (double)step);
}

static double y_of(const struct panel *panel, double value) {
    return panel->top + PANEL * (1 - place_of(&panel->values, value));
}

static int compare_steps(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The usual distance of two steps: the median. */
static int64_t usual_distance(const struct plot_series *series, struct arena *arena) {
    int64_t *distances = ARENA_ARRAY(arena, int64_t, series->points.n + 1);
    int n = 0;
    for (int i = 1; i < series->points.n; i++) {
        const int64_t before = series->points.at[i - 1].step, step = series->points.at[i].step;
        if (step > before) distances[n++] = step - before;
    }
    qsort(distances, (size_t)n, sizeof *distances, compare_steps);
    return n ? distances[n / 2] : 1;
}

static bool joins(const struct plot_point *before, const struct plot_point *point, int64_t usual) {
    return isfinite(before->value) && point->step > before->step && (point->step - before->step) / 2 <= usual;
}

/* Of the points of a line that lie in one column of the picture, the least and the greatest value remain. */
static int column_end(const struct panel *panel, const struct plot_series *series, int first, int end) {
    const double column = floor(x_of(panel, series->points.at[first].step));
    int last = first;
    while (last + 1 < end && floor(x_of(panel, series->points.at[last + 1].step)) == column) last++;
    return last + 1;
}

static void put_point(struct strbuf *out, const struct panel *panel, const struct plot_point *point, bool begins) {
    strbuf_printf(out, "%s%.2f %.2f", begins ? "M" : "L", x_of(panel, point->step), y_of(panel, point->value));
}

/* A line through points first to end - 1. */
static void put_line(struct strbuf *out, const struct panel *panel, const struct plot_series *series, int first,
                     int end) {
    const struct plot_point *points = series->points.at;
    for (int at = first, next; at < end; at = next) {
        int least = at, most = at;
        next = column_end(panel, series, at, end);
        for (int i = at; i < next; i++) {
            if (points[i].value < points[least].value) least = i;
            if (points[i].value > points[most].value) most = i;
        }
        put_point(out, panel, &points[least < most ? least : most], at == first);
        if (least != most) put_point(out, panel, &points[least < most ? most : least], false);
    }
}

static void put_dot(struct strbuf *out, const struct panel *panel, const struct plot_point *point, int run) {
    strbuf_printf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"2.5\" ", x_of(panel, point->step),
                  y_of(panel, point->value));
    strbuf_printf(out, "style=\"fill: var(--c%d)\"/>\n", run % COLOURS);
}

static void put_lost(struct strbuf *out, const struct panel *panel, const struct plot_point *point) {
    strbuf_printf(out, "<path class=\"lost\" d=\"M%.2f %.2fv-8\"><title>step %" PRId64 ": not finite</title></path>\n",
                  x_of(panel, point->step), panel->top + PANEL, point->step);
}

static void put_curve(struct strbuf *out, const struct panel *panel, const struct plot_series *series, int run) {
    const int64_t usual = usual_distance(series, out->arena);
    const struct plot_point *points = series->points.at;
    for (int first = 0, end; first < series->points.n; first = end) {
        end = first + 1;
        if (!isfinite(points[first].value)) {
            put_lost(out, panel, &points[first]);
            continue;
        }
        while (end < series->points.n && isfinite(points[end].value) && joins(&points[end - 1], &points[end], usual))
            end++;
        if (end == first + 1) {
            put_dot(out, panel, &points[first], run);
            continue;
        }
        strbuf_puts(out, "<path class=\"curve\" ");
        put_colour(out, run);
        strbuf_puts(out, " d=\"");
        put_line(out, panel, series, first, end);
        strbuf_puts(out, "\"/>\n");
    }
}

/* Panels */

static void put_marks(struct strbuf *out, const struct panel *panel, bool last) {
    const double distance = mark_distance(&panel->values, 4), steps = fmax(1, mark_distance(&panel->steps, 8));
    for (double k = ceil(panel->values.low / distance) + 0.0; k <= floor(panel->values.high / distance); k++) {
        const double y = y_of(panel, k * distance);
        strbuf_printf(out, "<path class=\"grid\" d=\"M%d %.2fh%d\"/>", LEFT, y, COLUMNS);
        strbuf_printf(out, "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6, y + 4,
                      k * distance);
    }
    for (double k = ceil(panel->steps.low / steps); k <= floor(panel->steps.high / steps); k++) {
        const double x = LEFT + COLUMNS * place_of(&panel->steps, k * steps);
        strbuf_printf(out, "<path class=\"grid\" d=\"M%.2f %.2fv%d\"/>\n", x, panel->top, PANEL);
        if (last)
            strbuf_printf(out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\">%.10g</text>\n", x,
                          panel->top + PANEL + 16, k * steps);
    }
    strbuf_printf(out, "<path class=\"axis\" d=\"M%d %.2fv%dh%d\"/>\n", LEFT, panel->top, PANEL, COLUMNS);
}

static const char *title_of(const struct plot_runs *runs, enum plot_quantity quantity) {
    bool tokens = false, samples = false, evaluated = false;
    for (int r = 0; r < runs->all.n; r++) {
        const struct plot_run *run = &runs->all.at[r];
        if (run->quantity[PLOT_SPEED].points.n) *(run->tokens ? &tokens : &samples) = true;
        evaluated = evaluated || run->evaluations.points.n;
    }
    switch (quantity) {
    case PLOT_LOSS: return evaluated ? "loss (dots: evaluation)" : "loss";
    case PLOT_NORM: return "gradient norm";
    case PLOT_RATE: return "learning rate";
    default:
        return tokens && samples ? "tokens or samples per second" : tokens ? "tokens per second" : "samples per second";
    }
}

static void put_panel(struct strbuf *out, struct panel *panel, bool last) {
    const struct plot_runs *runs = panel->runs;
    struct range unused = nothing;
    panel->values = nothing;
    for (int r = 0; r < runs->all.n; r++) {
        widen_by(&unused, &panel->values, &runs->all.at[r].quantity[panel->quantity]);
        if (panel->quantity == PLOT_LOSS) widen_by(&unused, &panel->values, &runs->all.at[r].evaluations);
    }
    panel->values = with_margin(panel->values);
    strbuf_printf(out, "<text x=\"%d\" y=\"%.2f\" font-weight=\"bold\">%s</text>\n", LEFT, panel->top - 8,
                  title_of(runs, panel->quantity));
    put_marks(out, panel, last);
    for (int r = 0; r < runs->all.n; r++) {
        const struct plot_run *run = &runs->all.at[r];
        put_curve(out, panel, &run->quantity[panel->quantity], r);
        for (int i = 0; panel->quantity == PLOT_LOSS && i < run->evaluations.points.n; i++)
            if (isfinite(run->evaluations.points.at[i].value)) put_dot(out, panel, &run->evaluations.points.at[i], r);
    }
}

static void put_legend(struct strbuf *out, const struct plot_runs *runs) {
    for (int r = 0; r < runs->all.n; r++) {
        const int y = LEGEND / 2 + 4 + r * LEGEND;
        strbuf_printf(out, "<path class=\"curve\" d=\"M%d %dh24\" ", LEFT, y);
        put_colour(out, r);
        strbuf_printf(out, "/><text x=\"%d\" y=\"%d\">", LEFT + 32, y + 4);
        put_escaped(out, runs->all.at[r].name);
        strbuf_puts(out, "</text>\n");
    }
}

static struct range all_steps(const struct plot_runs *runs) {
    struct range steps = nothing, unused = nothing;
    for (int r = 0; r < runs->all.n; r++) {
        for (int q = 0; q < PLOT_QUANTITIES; q++) widen_by(&steps, &unused, &runs->all.at[r].quantity[q]);
        widen_by(&steps, &unused, &runs->all.at[r].evaluations);
    }
    if (steps.low == steps.high) return (struct range){steps.low - 1, steps.high + 1};
    return steps;
}

const char *plot_svg(const struct plot_runs *runs, struct arena *arena) {
    static const char name[] = "page/curves.svg.in";
    struct tmpl_env *env = tmpl_env(arena, NULL);
    struct panel panel = {.runs = runs, .steps = all_steps(runs)};
    struct strbuf out;
    int panels = 0, done = 0;
    strbuf_init(&out, arena);
    for (int q = 0; q < PLOT_QUANTITIES; q++) panels += has_points(runs, (enum plot_quantity)q);
    const int legend = runs->all.n * LEGEND + 8, height = legend + panels * (TOP + PANEL + BELOW) + FOOT;
    put_legend(&out, runs);
    for (int q = 0; q < PLOT_QUANTITIES; q++) {
        if (!has_points(runs, (enum plot_quantity)q)) continue;
        panel.quantity = (enum plot_quantity)q;
        panel.top = legend + done * (TOP + PANEL + BELOW) + TOP;
        put_panel(&out, &panel, ++done == panels);
    }
    strbuf_printf(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>", LEFT + COLUMNS / 2, height - 6);
    tmpl_setf(env, "width", "%d", WIDTH);
    tmpl_setf(env, "height", "%d", height);
    tmpl_set(env, "content", strbuf_text(&out));
    return tmpl_fill(arena, name, template_text(name), env);
}
