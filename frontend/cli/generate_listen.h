/* What rank 0 of a generation reports. */
#ifndef FRONTEND_CLI_GENERATE_LISTEN_H
#define FRONTEND_CLI_GENERATE_LISTEN_H

#include "frontend/cli/generate_prompts.h"

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
