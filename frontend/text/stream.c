#include "frontend/text/tokenizer.h"

#include <string.h>

#include "frontend/text/unicode.h"

/* `ids` are those whose text was given last, `told` of them, and those that wait. `before` is the text of the former:
 * what follows it in the text of all is new. The former are kept because a decoder may treat the first token of a text
 * in its own way. */
struct token_stream {
    struct tokenizer *tokenizer;
    struct arena *arena;
    bool skip_special;
    struct token_ids ids;
    int told;
    struct strbuf before;
};

struct token_stream *token_stream_open(struct tokenizer *tokenizer, struct arena *arena, bool skip_special) {
    struct token_stream *stream = ARENA_NEW(arena, struct token_stream);
    *stream = (struct token_stream){.tokenizer = tokenizer, .arena = arena, .skip_special = skip_special};
    strbuf_init(&stream->before, arena);
    return stream;
}

/* Where in a text that which was not given yet begins. Bytes may have made invalid what was given: then as many
 * characters count as given. */
static size_t new_part(const struct token_stream *stream, const char *text, size_t bytes) {
    const struct span before = {strbuf_text(&stream->before), stream->before.length};
    size_t at = 0;
    int32_t code;
    if (bytes >= before.bytes && memcmp(text, before.at, before.bytes) == 0) return before.bytes;
    for (int64_t n = utf8_count(before); n && at < bytes; n--) at += (size_t)utf8_get(text + at, &code);
    return at;
}

static bool is_certain(const struct token_stream *stream, const char *text, size_t bytes) {
    const bool cut = bytes >= 3 && memcmp(text + bytes - 3, "\xef\xbf\xbd", 3) == 0;
    return bytes > stream->before.length && !cut;
}

/* The ids whose text was just given become those that are kept. */
static int advance(struct token_stream *stream, struct arena *scratch, struct diags *diags) {
    const int left = stream->ids.n - stream->told;
    size_t bytes;
    memmove(stream->ids.at, stream->ids.at + stream->told, (size_t)left * sizeof *stream->ids.at);
    stream->ids.n = stream->told = left;
    const char *text =
        tokenizer_decode(stream->tokenizer, scratch, diags, stream->ids.at, left, stream->skip_special, &bytes);
    if (!text) return -1;
    stream->before.length = 0;
    strbuf_add(&stream->before, text, bytes);
    return 0;
}

/* Gives what is new of the text of all ids: if it is certain, or at the end. */
static int give(struct token_stream *stream, struct diags *diags, bool end, struct strbuf *text) {
    struct arena *scratch = arena_scratch(stream->arena);
    size_t bytes;
    int status = -1;
    const char *all = tokenizer_decode(stream->tokenizer, scratch, diags, stream->ids.at, stream->ids.n,
                                       stream->skip_special, &bytes);
    if (all) {
        const bool gives = end || is_certain(stream, all, bytes);
        const size_t from = gives ? new_part(stream, all, bytes) : bytes;
        strbuf_add(text, all + from, bytes - from);
        status = gives ? advance(stream, scratch, diags) : 0;
    }
    arena_release(stream->arena, scratch);
    return status;
}

/* An id without a text changes nothing. */
int token_stream_push(struct token_stream *stream, struct diags *diags, int32_t id, struct strbuf *text) {
    if (!tokenizer_token(stream->tokenizer, id)) return 0;
    if (stream->skip_special && tokenizer_is_special(stream->tokenizer, id)) return 0;
    VEC_PUSH(stream->arena, &stream->ids, id);
    return give(stream, diags, false, text);
}

int token_stream_finish(struct token_stream *stream, struct diags *diags, struct strbuf *text) {
    return stream->told < stream->ids.n ? give(stream, diags, true, text) : 0;
}
