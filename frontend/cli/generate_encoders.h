/* Programs that rankc generate executes once, before the decoder's first step (--encoder): the encoder, and where the
 * export has one, the decoder without caches, which computes the caches of the encoder. */
#ifndef FRONTEND_CLI_GENERATE_ENCODERS_H
#define FRONTEND_CLI_GENERATE_ENCODERS_H

#include "frontend/cli/generate_prompts.h"
#include "runtime/base/roles.h"

struct encoders;

/* Opens the compiled programs in those directories, in the order in which they are executed. 0, or -1 after
 * diagnostics; *out is NULL where there are none. encoders_close takes it in any case. */
int encoders_open(struct encoders **out, const struct option_texts *directories, struct cli *cli);
void encoders_close(struct encoders *encoders);

/* Takes an --input that one of them has; false: it is the decoder's. */
bool encoders_take(struct encoders *encoders, const struct option_file *input);

/* The files of token ids and their mask that were taken; NULL: none. */
const char *encoders_ids(const struct encoders *encoders);
const char *encoders_mask(const struct encoders *encoders);
/* True if an encoder takes token ids. */
bool encoders_read_ids(const struct encoders *encoders);

/* What they are to compute. */
struct encoded {
    const struct token_rows *source; /* token ids of the encoder; no rows: it takes none */
    const struct token_rows *starts; /* the decoder's first tokens, as many rows */
    int64_t pad;                     /* token id behind the end of a row */
    const char *directory;           /* for files */
};

/* Rows of the batch, by the source or by the first tensor that was taken; -1: not known. */
int64_t encoders_rows(const struct encoders *encoders, const struct token_rows *source);

/* Finds the values of all inputs and compares shapes. 0, or -1 after E0915. */
int encoders_prepare(struct encoders *encoders, const struct encoded *encoded);

/* The inputs of the decoder that they compute or take: those to which role_of gives a role that no step fills, or none.
 * 0, or -1 after E0915: the decoder has one that nothing gives, or another shape. */
typedef enum rt_role role_of_input(const void *context, const char *name);
int encoders_link(struct encoders *encoders, const struct compiled_model *decoder, role_of_input *role_of,
                  const void *context);

/* Executes them, and adds the decoder's inputs to `inputs`. An exit code, or -1 after a diagnostic. */
int encoders_run(struct encoders *encoders, struct option_files *inputs);

#endif
