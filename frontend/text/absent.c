/* tokenizer.h in a rankc that was built without the libraries: nothing can be opened. */
#include "frontend/text/tokenizer.h"

struct tokenizer *tokenizer_open(struct arena *arena, struct diags *diags, const char *path) {
    (void)arena;
    diag_error(diags, 440, EXIT_UNSUPPORTED, path, "rankc was built without PCRE2 or utf8proc, which tokenizers need");
    diag_help(diags, "install libpcre2-dev and libutf8proc-dev, and build rankc anew");
    return NULL;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ABSENT(...)                                                                                                    \
    __VA_ARGS__ {                                                                                                      \
        BUG("no tokenizer");                                                                                           \
    }
ABSENT(int tokenizer_encode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *text,
                            size_t bytes, bool special, struct token_ids *ids))
ABSENT(const char *tokenizer_decode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags,
                                    const int32_t *ids, int n, bool skip_special, size_t *bytes))
ABSENT(const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t id))
ABSENT(bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id))
ABSENT(struct token_stream *token_stream_open(struct tokenizer *tokenizer, struct arena *arena, bool skip_special))
ABSENT(int token_stream_push(struct token_stream *stream, struct diags *diags, int32_t id, struct strbuf *text))
ABSENT(int token_stream_finish(struct token_stream *stream, struct diags *diags, struct strbuf *text))
