/* Parts of rankc generate: prompts, and what rank 0 reports. */
#ifndef FRONTEND_CLI_GENERATE_H
#define FRONTEND_CLI_GENERATE_H

#include "frontend/cli/compiled_model.h"

struct token_row {
    VEC(int64_t) ids;
};

struct token_rows {
    VEC(struct token_row) all;
};

/* The rows of a tensor of ids [batch, tokens] or [tokens] in a file, without those where `mask`, another file of that
 * shape or NULL, is 0. 0, or -1 after E0915. */
int prompts_of_file(struct token_rows *rows, const char *path, const char *mask, struct cli *cli);

/* The text of a file of prompts, as programs take it: a line of ids for each row. */
const char *prompts_text(const struct token_rows *rows, struct cli *cli);

/* The ids of texts. 0, or -1 after a diagnostic. */
struct tokenizer;
int prompts_of_texts(struct token_rows *rows, const struct option_texts *texts, struct tokenizer *tokenizer,
                     struct cli *cli);

/* What a generation has come to. */
struct reported {
    struct token_rows rows;
    bool done; /* it came to its end, and the following is known: */
    int64_t prompt_tokens, tokens;
    double prompt_ms, ms;
};

/* Told of new tokens, by the thread that listens: row i got ids[i], -1 none. Returns, if the run asks, in ends[i]
 * whether the row ends there. */
typedef void listen_step(void *context, int64_t rows, const int64_t *ids, bool *ends);

/* Listens at the socket `path`, which it makes, to rank 0's report (runtime/program/generate.h). */
struct listener;
int listener_open(struct listener **out, const char *path, listen_step *step, bool answers, void *context,
                  struct cli *cli);
/* Ends the thread, once the ranks have ended, and gives what was reported; its memory is in the listener's arena, which
 * is that of cli. NULL: nothing. */
void listener_close(struct listener *listener, struct reported *reported);

#endif
