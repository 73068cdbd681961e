/* Prompts of rankc generate: files of token ids, and texts. */
#include "frontend/cli/generate_prompts.h"

#include <inttypes.h>
#include <string.h>

#include "frontend/text/tokenizer.h"
#include "ir/base/str.h"
#include "runtime/base/npy.h"

static const char *type_text(const struct rt_tensor *tensor, struct cli *cli) {
    const char *text = arena_printf(cli->arena, "%s [", rt_dtypes[tensor->dtype].name);
    for (int d = 0; d < tensor->ndim; d++)
        text = arena_printf(cli->arena, "%s%s%" PRId64, text, d ? ", " : "", tensor->dims[d]);
    return arena_printf(cli->arena, "%s]", text);
}

/* Reads a tensor of integers with the shape [tokens] or [batch, tokens]. */
static int read_integers(const char *path, struct rt_tensor *tensor, struct cli *cli) {
    struct rt_reason why;
    if (!rt_npy_read(tensor, path, &why))
        return diag_refusal(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, path), &why);
    if ((rt_dtype_is_integer(tensor->dtype) || tensor->dtype == RT_BOOL) && tensor->ndim >= 1 && tensor->ndim <= 2 &&
        tensor->count > 0)
        return 0;
    rt_tensor_free(tensor);
    return diag_error(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, path),
                      "prompts are integers of the shape [batch, tokens], and this is %s", type_text(tensor, cli));
}

static int64_t integer_at(const struct rt_tensor *tensor, int64_t i) {
    const size_t bytes = rt_dtype_bytes(tensor->dtype);
    int64_t value = 0;
    rt_convert(&value, RT_I64, (const unsigned char *)tensor->data + (size_t)i * bytes, tensor->dtype, 1);
    return value;
}

static int read_row(struct token_row *row, const struct rt_tensor *ids, const struct rt_tensor *mask, int64_t first,
                    int64_t count, const char *path, struct cli *cli) {
    for (int64_t i = first; i < first + count; i++) {
        const int64_t id = integer_at(ids, i);
        if (mask && !integer_at(mask, i)) continue;
        if (id < 0 || id > INT32_MAX)
            return diag_error(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, path),
                              "%" PRId64 " is no token id", id);
        VEC_PUSH(cli->arena, &row->ids, id);
    }
    if (row->ids.n) return 0;
    return diag_error(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, path), "a prompt has no tokens");
}

static int read_rows(struct token_rows *rows, const struct rt_tensor *ids, const struct rt_tensor *mask,
                     const char *path, struct cli *cli) {
    const int64_t count = ids->dims[ids->ndim - 1];
    if (mask && (mask->ndim != ids->ndim || mask->count != ids->count || mask->dims[mask->ndim - 1] != count))
        return diag_error(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, path),
                          "the prompts are %s, but their mask is %s", type_text(ids, cli), type_text(mask, cli));
    for (int64_t first = 0; first < ids->count; first += count) {
        struct token_row row = {0};
        if (read_row(&row, ids, mask, first, count, path, cli) < 0) return -1;
        VEC_PUSH(cli->arena, &rows->all, row);
    }
    return 0;
}

int prompts_of_file(struct token_rows *rows, const char *path, const char *mask, struct cli *cli) {
    struct rt_tensor ids, masks;
    if (read_integers(path, &ids, cli) < 0) return -1;
    if (mask && read_integers(mask, &masks, cli) < 0) return rt_tensor_free(&ids), -1;
    const int status = read_rows(rows, &ids, mask ? &masks : NULL, path, cli);
    rt_tensor_free(&ids);
    if (mask) rt_tensor_free(&masks);
    return status;
}

int prompts_of_texts(struct token_rows *rows, const struct option_texts *texts, struct tokenizer *tokenizer,
                     struct cli *cli) {
    for (int i = 0; i < texts->all.n; i++) {
        struct token_ids ids = {0};
        struct token_row row = {0};
        const char *text = texts->all.at[i];
        if (tokenizer_encode(tokenizer, cli->arena, cli->diags, text, strlen(text), true, &ids) < 0) return -1;
        for (int k = 0; k < ids.n; k++) VEC_PUSH(cli->arena, &row.ids, ids.at[k]);
        if (!ids.n) return diag_error(cli->diags, 915, EXIT_MALFORMED, "--prompt", "prompt %d has no tokens", i + 1);
        VEC_PUSH(cli->arena, &rows->all, row);
    }
    return 0;
}

const char *prompts_text(const struct token_rows *rows, struct cli *cli) {
    struct strbuf text = {.arena = cli->arena};
    VEC_EACH(&rows->all, r, const struct token_row *row) {
        for (int i = 0; i < row->ids.n; i++) strbuf_printf(&text, "%s%" PRId64, i ? " " : "", row->ids.at[i]);
        strbuf_printf(&text, "\n");
    }
    return strbuf_text(&text);
}
