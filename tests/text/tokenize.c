/* tokenize TOKENIZER < CASES: what a tokenizer makes of texts, for tokenize.py.
 *
 * A case is a line of hexadecimal digits, the bytes of a text. For each there is a line of JSON:
 *     {"ids": with special tokens, "plain": without, "text": of ids, "skipped": without special tokens,
 *      "stream": what each of ids gives, and at last the end}
 * or {"error": ..}.
 *
 * tokenize TOKENIZER --time FILE: encodes a file, and prints the bytes, ids and seconds. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/text/tokenizer.h"
#include "ir/base/own.h"

static _Noreturn void give_up(struct diags *diags) {
    diags_print(diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_WARNING);
    exit(diags_exit(diags));
}

static void put_ids(struct rt_json_writer *out, const char *key, const struct token_ids *ids) {
    rt_json_key_open(out, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < ids->n; i++) rt_json_put_int(out, ids->at[i]);
    rt_json_close(out, ']');
}

static bool put_text(struct rt_json_writer *out, const char *key, struct tokenizer *tokenizer, struct arena *arena,
                     struct diags *diags, const struct token_ids *ids, bool skip) {
    size_t bytes;
    const char *text = tokenizer_decode(tokenizer, arena, diags, ids->at, ids->n, skip, &bytes);
    if (!text) return false;
    rt_json_key(out, key);
    rt_json_put_bytes(out, text, bytes);
    return true;
}

static bool put_stream(struct rt_json_writer *out, struct tokenizer *tokenizer, struct arena *arena,
                       struct diags *diags, const struct token_ids *ids) {
    struct token_stream *stream = token_stream_open(tokenizer, arena, false);
    rt_json_key_open(out, "stream", '[', RT_JSON_INLINE);
    for (int i = 0; i <= ids->n; i++) {
        struct strbuf text;
        strbuf_init(&text, arena);
        if (i < ids->n ? token_stream_push(stream, diags, ids->at[i], &text)
                       : token_stream_finish(stream, diags, &text))
            return false;
        rt_json_put_bytes(out, strbuf_text(&text), text.length);
    }
    rt_json_close(out, ']');
    return true;
}

static void run_case(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *text,
                     size_t bytes) {
    struct token_ids ids = {0}, plain = {0};
    struct rt_json_writer *out = own_json_writer(arena);
    rt_json_open(out, '{', RT_JSON_INLINE);
    bool good = tokenizer_encode(tokenizer, arena, diags, text, bytes, true, &ids) == 0 &&
                tokenizer_encode(tokenizer, arena, diags, text, bytes, false, &plain) == 0;
    if (good) {
        put_ids(out, "ids", &ids);
        put_ids(out, "plain", &plain);
        good = put_text(out, "text", tokenizer, arena, diags, &ids, false) &&
               put_text(out, "skipped", tokenizer, arena, diags, &ids, true) &&
               put_stream(out, tokenizer, arena, diags, &ids);
    }
    if (!good) {
        out = own_json_writer(arena);
        rt_json_open(out, '{', RT_JSON_INLINE);
        rt_json_key_text(out, "error", diags->all.at[diags->all.n - 1].text);
    }
    rt_json_close(out, '}');
    fputs(own_json_end(arena, out), stdout);
}

static size_t from_hex(char *line) {
    size_t n = 0;
    for (char *at = line; isxdigit((unsigned char)at[0]) && isxdigit((unsigned char)at[1]); at += 2) {
        const char digits[] = {at[0], at[1], 0};
        line[n++] = (char)strtol(digits, NULL, 16);
    }
    return n;
}

static void run_cases(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags) {
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        struct arena *scratch = arena_scratch(arena);
        run_case(tokenizer, scratch, diags, line, from_hex(line));
        arena_release(arena, scratch);
    }
    free(line);
}

static void time_file(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *path) {
    struct rt_reason why;
    struct timespec begin, end;
    void *text;
    size_t bytes;
    struct token_ids ids = {0};
    if (!own_file(arena, path, (size_t)1 << 30, &text, &bytes, &why)) exit(EXIT_SYSTEM);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (tokenizer_encode(tokenizer, arena, diags, text, bytes, true, &ids)) give_up(diags);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%zu bytes, %d ids, %.3f s\n", bytes, ids.n,
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
}

int main(int argc, char **argv) {
    struct arena arena;
    struct diags diags;
    arena_init(&arena, 0, NULL);
    diags_init(&diags, &arena);
    struct tokenizer *tokenizer = argc > 1 ? tokenizer_open(&arena, &diags, argv[1]) : NULL;
    if (!tokenizer) give_up(&diags);
    if (argc > 3 && strcmp(argv[2], "--time") == 0)
        time_file(tokenizer, &arena, &diags, argv[3]);
    else
        run_cases(tokenizer, &arena, &diags);
    arena_free(&arena);
    return 0;
}
