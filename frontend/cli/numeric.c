#include "frontend/cli/numeric.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/temporary.h"
#include "frontend/driver.h"
#include "runtime/base/npy.h"
#include "runtime/launch.h"

enum { EPS_ALLOWED = 1024 };

struct comparison {
    const struct compiled *compiled;
    struct cli *cli;
    const char *work; /* a directory of our own */
};

static int fail_reason(const struct comparison *c, const struct rt_reason *why) {
    return diag_error(c->cli->diags, 601, EXIT_SYSTEM, NULL, "%s", why->text);
}

/* splitmix64: the same inputs in every run. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void fill(void *data, enum rt_dtype dtype, int64_t count, uint64_t seed) {
    bool is_float = rt_dtype_is_float(dtype);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = next_random(&seed);
        double value = is_float ? (double)(bits >> 11) / (1ull << 52) - 1 : (double)(bits >> 63);
        rt_convert((char *)data + i * (int64_t)rt_dtype_bytes(dtype), dtype, &value, RT_F64, 1);
    }
}

/* Writes a random tensor for one entry of the manifest's inputs. */
static int write_input(const struct comparison *c, const struct rt_json *input, int index, const char *path) {
    enum rt_dtype dtype = rt_dtype_by_name(rt_json_text(rt_json_member(input, "dtype")));
    const struct rt_json *shape = rt_json_member(input, "shape");
    int64_t dims[RT_TENSOR_MAX_NDIM], count = 1;
    int ndim = 0;
    struct rt_reason why;
    for (const struct rt_json *d = shape ? shape->first : NULL; d && ndim < RT_TENSOR_MAX_NDIM; d = d->next)
        if (rt_json_int(d, &dims[ndim])) count *= dims[ndim++];
    void *data = arena_alloc(c->cli->arena, (size_t)count + 1, rt_dtype_bytes(dtype));
    fill(data, dtype, count, (uint64_t)index + 1);
    return rt_npy_write(path, dtype, ndim, dims, data, &why) ? 0 : fail_reason(c, &why);
}

struct words {
    VEC(const char *) all;
};

static void add_word(const struct comparison *c, struct words *words, const char *word) {
    VEC_PUSH(c->cli->arena, &words->all, word);
}

static int write_inputs(const struct comparison *c, struct words *words) {
    const struct rt_json *inputs = rt_json_member(c->compiled->root, "inputs");
    int index = 0;
    for (const struct rt_json *input = inputs ? inputs->first : NULL; input; input = input->next, index++) {
        const char *path = arena_printf(c->cli->arena, "%s/input%d.npy", c->work, index),
                   *name = rt_json_text(rt_json_member(input, "name"));
        if (!name || write_input(c, input, index, path) < 0) return -1;
        add_word(c, words, "--input");
        add_word(c, words, arena_printf(c->cli->arena, "%s=%s", name, path));
    }
    return 0;
}

/* Runs the program of `dir` on the inputs, with outputs in work/<name>. */
static int run(const struct comparison *c, const char *dir, const struct words *inputs, const char *name,
               int64_t ranks) {
    struct words words = {0};
    for (int i = 0; i < inputs->all.n; i++) add_word(c, &words, inputs->all.at[i]);
    add_word(c, &words, "--output-dir");
    add_word(c, &words, arena_printf(c->cli->arena, "%s/%s", c->work, name));
    add_word(c, &words, NULL);
    const struct rt_launch launch = {.program = arena_printf(c->cli->arena, "%s/build/run", dir),
                                     .arguments = (const char *const *)words.all.at,
                                     .ranks = (int)ranks};
    return rt_launch(&launch);
}

/* Comparison --------------------------------------------------------------------------------------------------------- */

static double element(const struct rt_tensor *t, int64_t i) {
    double value;
    rt_convert(&value, RT_F64, (const char *)t->data + i * (int64_t)rt_dtype_bytes(t->dtype), t->dtype, 1);
    return value;
}

static double allowed(const struct rt_tensor *one) {
    double largest = 0, eps = one->dtype == RT_F64 ? DBL_EPSILON : FLT_EPSILON;
    for (int64_t i = 0; i < one->count; i++)
        if (isfinite(element(one, i)) && fabs(element(one, i)) > largest) largest = fabs(element(one, i));
    return rt_dtype_is_float(one->dtype) ? EPS_ALLOWED * eps * largest : 0;
}

static int compare_tensors(const struct comparison *c, const char *name, const struct rt_tensor *all,
                           const struct rt_tensor *one) {
    double bound = allowed(one);
    if (all->dtype != one->dtype || all->count != one->count)
        return diag_error(c->cli->diags, 1104, EXIT_MISMATCH, NULL,
                          "output %s has another type or shape than on one rank", diag_quote(c->cli->diags, name));
    for (int64_t i = 0; i < all->count; i++) {
        double a = element(all, i), b = element(one, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= bound) continue;
        return diag_error(c->cli->diags, 1104, EXIT_MISMATCH, NULL,
                          "output %s, element %lld: %.9g, on one rank %.9g (allowed difference %.3g)",
                          diag_quote(c->cli->diags, name), (long long)i, a, b, bound);
    }
    return 0;
}

static int compare_file(const struct comparison *c, const char *name, const char *file) {
    struct rt_tensor all = {0}, one = {0};
    struct rt_reason why;
    int status = -1;
    if (!rt_npy_read(&all, arena_printf(c->cli->arena, "%s/all/%s", c->work, file), &why) ||
        !rt_npy_read(&one, arena_printf(c->cli->arena, "%s/one/%s", c->work, file), &why))
        fail_reason(c, &why);
    else
        status = compare_tensors(c, name, &all, &one);
    rt_tensor_free(&all);
    rt_tensor_free(&one);
    return status;
}

static int compare_outputs(const struct comparison *c) {
    struct rt_reason why;
    struct rt_json_document *document =
        own_json(c->cli->arena, arena_printf(c->cli->arena, "%s/one/outputs.json", c->work), &why);
    if (!document) return fail_reason(c, &why);
    const struct rt_json *outputs = rt_json_member(rt_json_root(document), "outputs");
    int status = 0;
    for (const struct rt_json *o = outputs ? outputs->first : NULL; o; o = o->next) {
        const char *name = rt_json_text(rt_json_member(o, "name")), *file = rt_json_text(rt_json_member(o, "file"));
        if (!name || !file || compare_file(c, name, file) < 0) status = -1;
    }
    arena_release(c->cli->arena, document);
    return status;
}

static int compare(const struct comparison *c) {
    struct words inputs = {0};
    if (driver_compile_whole(c->compiled->directory, c->work, c->cli->arena, c->cli->diags) < 0 ||
        write_inputs(c, &inputs) < 0)
        return -1;
    int status = run(c, arena_printf(c->cli->arena, "%s/graph/_", c->work), &inputs, "one", 1);
    if (!status) status = run(c, c->compiled->directory, &inputs, "all", c->compiled->runtime_ngpus);
    return status ? status : compare_outputs(c);
}

int numeric_compare(const struct compiled *compiled, struct cli *cli) {
    const char *work = temporary_make(cli, "verify");
    if (!work) return -1;
    struct comparison c = {compiled, cli, work};
    int status = compare(&c);
    temporary_remove(work);
    return status;
}
