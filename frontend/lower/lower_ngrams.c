/* ONNX TfIdfVectorizer-9 of integers. */
#include "frontend/lower/onnx_lower.h"

#include <limits.h>
#include <string.h>

/* The attributes. N-grams of `size` elements are in the pool from starts[size - 1] on. weights: NULL, all are 1. */
struct vectorizer {
    int64_t least, most, distances, columns;
    const int64_t *pool, *starts, *column;
    int npool, nsizes, ngrams;
    const float *weights;
};

static int malformed(struct lower *lower, const char *attribute) {
    return lower_error(lower, 385, "attribute %s does not fit the other attributes", attribute);
}

static int64_t pool_end(const struct vectorizer *v, int size) {
    return size < v->nsizes ? v->starts[size] : v->npool;
}

static int read_attributes(struct lower *lower, struct vectorizer *v) {
    int nweights;
    *v = (struct vectorizer){.least = lower_int(lower, "min_gram_length"),
                             .most = lower_int(lower, "max_gram_length"),
                             .distances = lower_int(lower, "max_skip_count")};
    v->pool = lower_ints(lower, "pool_int64s", &v->npool);
    v->starts = lower_ints(lower, "ngram_counts", &v->nsizes);
    v->column = lower_ints(lower, "ngram_indexes", &v->ngrams);
    v->weights = lower_floats(lower, "weights", &nweights);
    if (nweights && nweights != v->ngrams) return malformed(lower, "weights");
    if (!nweights || strcmp(lower_text(lower, "mode"), "TF") == 0) v->weights = NULL;
    if (v->least < 1 || v->most < v->least || v->most > v->nsizes) return malformed(lower, "max_gram_length");
    if (v->distances < 0 || v->distances > INT_MAX) return malformed(lower, "max_skip_count");
    v->distances++;
    int64_t ngrams = 0;
    for (int size = 1; size <= v->nsizes; size++) {
        const int64_t items = pool_end(v, size) - v->starts[size - 1];
        if (v->starts[size - 1] < 0 || items < 0 || pool_end(v, size) > v->npool || items % size)
            return malformed(lower, "ngram_counts");
        ngrams += items / size;
    }
    if (ngrams != v->ngrams) return malformed(lower, "ngram_indexes");
    for (int i = 0; i < v->ngrams; i++) {
        if (v->column[i] < 0 || v->column[i] >= INT_MAX) return malformed(lower, "ngram_indexes");
        if (v->column[i] >= v->columns) v->columns = v->column[i] + 1;
    }
    return 0;
}

/* Counts of all n-grams in rows x (n, c): (n, ngrams) of f32; n-grams of sizes that are not wanted count 0. */
static int count_all(struct lower *lower, const struct vectorizer *v, int x, int64_t rows) {
    int *parts = ARENA_ARRAY(lower->arena, int, v->nsizes + 1), nparts = 0;
    const struct attr distances = attr_of_int("distances", v->distances);
    for (int size = 1; size <= v->nsizes; size++) {
        const int64_t first = v->starts[size - 1], items = pool_end(v, size) - first;
        const int64_t shape[] = {items / size, size};
        if (!items) continue;
        int part;
        if (size < v->least || size > v->most) {
            part = emit_expand(lower, build_scalar(&lower->builder, RT_I64, 0), 2, (int64_t[]){rows, items / size});
        } else {
            const int grams = emit_ints(lower, (int)items, v->pool + first, 2, shape);
            if (grams < 0) return -1;
            part = emit(lower, OP_NgramCount, 2, (int[]){x, grams}, 1, &distances);
        }
        parts[nparts++] = part;
    }
    return emit_cast(lower, nparts == 1 ? parts[0] : emit_concat(lower, 1, nparts, parts), RT_F32);
}

static int weigh(struct lower *lower, const struct vectorizer *v, int counts) {
    if (strcmp(lower_text(lower, "mode"), "IDF") == 0)
        counts = emit_cast(lower, emit_with(lower, OP_Greater, counts, 0), RT_F32);
    if (!v->weights) return counts;
    float *weights = ARENA_ARRAY(lower->arena, float, v->ngrams);
    memcpy(weights, v->weights, (size_t)v->ngrams * sizeof *weights);
    const int64_t n = v->ngrams;
    return emit2(lower, OP_Mul, counts,
                 graph_add_const(lower->builder.graph, lower->builder.node, RT_F32, 1, &n, weights));
}

/* Adds the value of each n-gram to its column. */
static int to_columns(struct lower *lower, const struct vectorizer *v, int values, int64_t rows) {
    bool in_order = v->columns == v->ngrams;
    for (int i = 0; i < v->ngrams && in_order; i++) in_order = v->column[i] == i;
    if (in_order) return values;
    const int zeros = emit_expand(lower, build_scalar(&lower->builder, RT_F32, 0), 2, (int64_t[]){rows, v->columns});
    const int index = emit_expand(lower, emit_ints(lower, v->ngrams, v->column, 2, (int64_t[]){1, v->ngrams}), 2,
                                  (int64_t[]){rows, v->ngrams});
    return emit_along(lower, OP_ScatterElementsAdd, 3, (int[]){zeros, index, values}, 1);
}

int lower_tf_idf(struct lower *lower) {
    static const char *const modes[] = {"TF", "IDF", "TFIDF"};
    const struct tensor x = lower_input(lower, 0);
    struct vectorizer v;
    int mode = 0;
    if (lower_given(lower, "pool_strings")) return lower_unsupported(lower, "n-grams of strings");
    while (mode < 3 && strcmp(modes[mode], lower_text(lower, "mode")) != 0) mode++;
    if (mode == 3) return lower_unknown(lower, "mode", lower_text(lower, "mode"));
    if (x.ndim != 1 && x.ndim != 2)
        return lower_error(lower, 378, "%s is neither a row nor a matrix", lower_type(lower, &x));
    if (read_attributes(lower, &v) < 0) return -1;
    const int64_t rows = x.ndim == 2 ? x.dims[0] : 1, shape[] = {rows, x.dims[x.ndim - 1]};
    const int words = emit_cast(lower, emit_reshape(lower, lower->inputs[0], 2, shape), RT_I64);
    const int values = weigh(lower, &v, count_all(lower, &v, words, rows));
    const int y = to_columns(lower, &v, values, rows);
    return lower_result(lower, x.ndim == 2 ? y : emit_squeeze(lower, y, 0));
}
