/* Rows of token ids, and those of prompts. */
#ifndef FRONTEND_CLI_GENERATE_PROMPTS_H
#define FRONTEND_CLI_GENERATE_PROMPTS_H

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

#endif
