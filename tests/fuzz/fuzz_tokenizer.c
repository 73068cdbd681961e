/* Fuzz target: tokenizer.json.
 *
 * A file is refused with diagnostics, or texts are encoded, or refused likewise; what their ids are decoded to is
 * UTF-8, and so is what a stream gives. */
#include <string.h>

#include "frontend/text/tokenizer.h"
#include "frontend/text/unicode.h"
#include "tests/fuzz/fuzz.h"

/* Words, spaces, digits, marks, an emoji of several characters, bytes that are no text, names of tokens, marks whose
 * order normalization changes. */
static const char *const texts[] = {
    "",
    "Hello, world! I'll don't  'S\t12345 x_1\r\n\n  end ",
    "\xc3\xa9"
    "e\xcc\x81 \xd0\x9f\xd1\x80 \xe4\xba\xba\xe4\xba\xba \xef\xac\x81 \xe2\x91\xa0 "
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 \xe2\x96\x81"
    "a \xc4\xb0",
    "\xff\xfe a\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80",
    "<s>[CLS] the</s> <unk><|endoftext|>\n\n\n[MASK] Yesterday <0x41>",
    "                                        a",
    "\xcc\x87\xf0\x90\xa8\xba a",
};

static void check_stream(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags,
                         const struct token_ids *ids) {
    struct token_stream *stream = token_stream_open(tokenizer, arena, true);
    struct strbuf text;
    strbuf_init(&text, arena);
    for (int i = 0; i < ids->n; i++)
        if (token_stream_push(stream, diags, ids->at[i], &text)) return;
    if (token_stream_finish(stream, diags, &text)) return;
    fuzz_check(utf8_is_valid((struct span){strbuf_text(&text), text.length}));
}

static bool check_text(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *text) {
    struct token_ids ids = {0};
    size_t bytes;
    const int errors = diags->errors;
    const bool good = tokenizer_encode(tokenizer, arena, diags, text, strlen(text), true, &ids) == 0;
    fuzz_check(good == (diags->errors == errors));
    if (!good) return false;
    for (int i = 0; i < ids.n; i++) fuzz_check(ids.at[i] >= 0);
    const char *decoded = tokenizer_decode(tokenizer, arena, diags, ids.at, ids.n, false, &bytes);
    fuzz_check((decoded != NULL) == (diags->errors == errors));
    if (!decoded) return false;
    fuzz_check(utf8_is_valid((struct span){decoded, bytes}));
    check_stream(tokenizer, arena, diags, &ids);
    return true;
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    diags_init(&diags, arena);
    struct tokenizer *tokenizer = tokenizer_open(arena, &diags, fuzz_file(data, size));
    fuzz_check((tokenizer != NULL) == (diags.errors == 0));
    fuzz_passed = tokenizer != NULL;
    for (size_t i = 0; tokenizer && i < sizeof texts / sizeof *texts; i++)
        fuzz_passed &= check_text(tokenizer, arena, &diags, texts[i]);
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
