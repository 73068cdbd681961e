#include "frontend/cli/generate_text.h"

#include <setjmp.h>
#include <string.h>

struct text_row {
    struct token_stream *stream;
    struct strbuf text;
    size_t shown;
    bool stopped;
};

struct texts {
    struct arena arena; /* another thread than that of cli fills it */
    jmp_buf failed;
    struct diags diags;
    const struct option_texts *stops;
    int64_t rows;
    FILE *out;
    struct text_row *all;
    bool broken; /* an error was found */
};

/* Where one of the stops begins in the text from `first` on; its length: it does not. */
static size_t find_stop(const struct texts *texts, const struct strbuf *text, size_t first) {
    size_t found = text->length;
    for (int i = 0; i < texts->stops->all.n && first < text->length; i++) {
        const char *stop = texts->stops->all.at[i];
        const char *at = memmem(text->text + first, text->length - first, stop, strlen(stop));
        if (at && (size_t)(at - text->text) < found) found = (size_t)(at - text->text);
    }
    return found;
}

/* The bytes of the text that cannot be the beginning of a stop. */
static size_t certain(const struct texts *texts, const struct strbuf *text) {
    size_t kept = 0;
    VEC_EACH_VALUE(&texts->stops->all, i, const char *stop) {
        const size_t most = strlen(stop) - 1;
        for (size_t n = text->length < most ? text->length : most; n > kept; n--)
            if (memcmp(text->text + text->length - n, stop, n) == 0) kept = n;
    }
    return text->length - kept;
}

static void show(const struct texts *texts, struct text_row *row, size_t length) {
    if (!texts->out || length <= row->shown) return;
    fwrite(row->text.text + row->shown, 1, length - row->shown, texts->out);
    fflush(texts->out);
    row->shown = length;
}

static size_t longest(const struct option_texts *stops) {
    size_t most = 0;
    for (int i = 0; i < stops->all.n; i++)
        if (strlen(stops->all.at[i]) > most) most = strlen(stops->all.at[i]);
    return most;
}

/* What was added begins at `before`: a stop may begin earlier. */
static void look_for_stop(struct texts *texts, struct text_row *row, size_t before) {
    const size_t most = longest(texts->stops);
    const size_t found = find_stop(texts, &row->text, before > most ? before - most : 0);
    row->stopped = found < row->text.length;
    if (row->stopped) row->text.text[row->text.length = found] = 0;
}

static int add_token(struct texts *texts, struct text_row *row, int64_t id) {
    const size_t before = row->text.length;
    if (row->stopped) return 0;
    if (token_stream_push(row->stream, &texts->diags, (int32_t)id, &row->text) < 0) return -1;
    look_for_stop(texts, row, before);
    show(texts, row, row->stopped ? row->text.length : certain(texts, &row->text));
    return 0;
}

static void out_of_memory(struct texts *texts) {
    texts->broken = true;
}

/* False: out of memory. */
static bool add_step(struct texts *texts, int64_t rows, const int64_t *ids, bool *ends) {
    if (setjmp(texts->failed)) return false;
    for (int64_t i = 0; i < rows && i < texts->rows; i++) {
        if (ids[i] >= 0 && add_token(texts, &texts->all[i], ids[i]) < 0) texts->broken = true;
        ends[i] = texts->all[i].stopped;
    }
    return true;
}

void texts_step(struct texts *texts, int64_t rows, const int64_t *ids, bool *ends) {
    if (!texts->broken && !add_step(texts, rows, ids, ends)) out_of_memory(texts);
    for (int64_t i = 0; i < rows && texts->broken; i++) ends[i] = true;
}

static bool open_rows(struct texts *texts, struct tokenizer *tokenizer) {
    if (setjmp(texts->failed)) return false;
    diags_init(&texts->diags, &texts->arena);
    texts->all = ARENA_ARRAY(&texts->arena, struct text_row, texts->rows + 1);
    for (int64_t i = 0; i < texts->rows; i++) {
        texts->all[i].stream = token_stream_open(tokenizer, &texts->arena, true);
        strbuf_init(&texts->all[i].text, &texts->arena);
    }
    return true;
}

struct texts *texts_open(struct tokenizer *tokenizer, const struct option_texts *stops, int64_t rows, FILE *out,
                         struct cli *cli) {
    struct texts *texts = ARENA_NEW(cli->arena, struct texts);
    *texts = (struct texts){.stops = stops, .rows = rows, .out = rows == 1 ? out : NULL};
    arena_init(&texts->arena, 0, &texts->failed);
    if (open_rows(texts, tokenizer)) return texts;
    texts_close(texts);
    diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    return NULL;
}

void texts_close(struct texts *texts) {
    if (texts) arena_free(&texts->arena);
}

static bool finish_rows(struct texts *texts) {
    if (setjmp(texts->failed)) return false;
    for (int64_t i = 0; i < texts->rows && !texts->broken; i++) {
        struct text_row *row = &texts->all[i];
        const size_t before = row->text.length;
        if (row->stopped) continue;
        texts->broken = token_stream_finish(row->stream, &texts->diags, &row->text) < 0;
        look_for_stop(texts, row, before);
        show(texts, row, row->text.length);
    }
    return true;
}

int texts_finish(struct texts *texts, struct diags *diags) {
    if (!finish_rows(texts)) out_of_memory(texts);
    if (!texts->broken) return 0;
    if (!texts->diags.errors) return diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    const struct diagnostic *first = &texts->diags.all.at[0];
    return diag_error(diags, first->code, first->exit, first->where, "%s", first->text);
}

const char *texts_row(const struct texts *texts, int64_t row, size_t *bytes) {
    *bytes = texts->all[row].text.length;
    return strbuf_text(&texts->all[row].text);
}
