/* The text of what rankc generate writes: decoded as tokens come, ended by --stop TEXT. */
#ifndef FRONTEND_CLI_GENERATE_TEXT_H
#define FRONTEND_CLI_GENERATE_TEXT_H

#include <stdio.h>

#include "frontend/cli/cli.h"
#include "frontend/text/tokenizer.h"

struct texts;

/* Texts of so many rows, in memory of their own. stops: those that end a row, and are not part of it. out: where the
 * only row is printed as it comes; NULL: nowhere. The tokenizer stays the caller's, and is used by the thread that
 * calls texts_step. */
struct texts *texts_open(struct tokenizer *tokenizer, const struct option_texts *stops, int64_t rows, FILE *out,
                         struct cli *cli);
void texts_close(struct texts *texts);

/* Adds a token to each row, -1: none; ends[i]: its text has reached one of `stops`. After an error, which texts_finish
 * reports, all rows end. */
void texts_step(struct texts *texts, int64_t rows, const int64_t *ids, bool *ends);

/* Completes the texts. 0, or -1 after a diagnostic. */
int texts_finish(struct texts *texts, struct diags *diags);

/* The text of a row, which may have any bytes; its length. */
const char *texts_row(const struct texts *texts, int64_t row, size_t *bytes);

#endif
