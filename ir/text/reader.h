/* The reader of text IR, divided among the files of this folder: tokens.c reads characters and words, numbers.c
 * numbers, values.c types, layouts and the tensors that statements define, statements.c, schedules.c and nodes.c the
 * statements, and parse.c the text. For use inside this folder; callers include ir/text.h.
 *
 * Functions that return bool report the first error as a diagnostic with its line and column, and return false. The
 * cursor is then somewhere inside the statement. Functions that read a token skip blanks before it. */
#ifndef IR_TEXT_READER_H
#define IR_TEXT_READER_H

#include "ir/base/map.h"
#include "ir/ir.h"

enum {
    MAX_WORD = 64,   /* with its final 0 */
    MAX_OUTPUTS = 16 /* of a node */
};

/* A tensor that a statement defines. op_infer infers the type of a computed tensor if the text omits it. */
struct definition {
    const char *at; /* position in the text */
    int number, tensor;
    bool left_out, typed;
    struct tensor given;
};

/* Note [Statements in error]
 * A statement that fails still defines its tensors, marked as in error. Statements that use those are skipped without a
 * diagnostic, so that one mistake is reported once, at its own line. */
enum { IN_ERROR = 0 };

/* Where an operator is declared, for errors that later statements show. */
struct declared {
    const char *line_start, *at; /* of the property `gradient` */
    long long line;
};

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *file;
    const char *at, *end, *line_start;
    long long line;
    struct graph *graph;
    int pair, second; /* specimen 2 * pair + second is read */
    int depth;        /* of the expression being read */
    struct map ids;   /* number in the text -> tensor id + 1, or IN_ERROR */
    struct definition defined[MAX_OUTPUTS];
    int ndefined; /* tensors that the current statement defines */
    int64_t const_bytes;
    VEC(struct step_op) rows;         /* of the last schedule */
    const struct transfer_ends *ends; /* of each coordinate; NULL: there are no schedules yet */
    VEC(struct declared) declared;
};

/* tokens.c */

/* Reports an error at position `at` of the text; returns false. */
bool fail_at(struct reader *reader, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The character at the cursor; -1 at the end of the text. */
int peek(const struct reader *reader);
void skip_blanks(struct reader *reader);
/* The start of the next token. */
const char *place(struct reader *reader);
/* Moves past `token` if it is next. expect reports an error if it is not. */
bool take(struct reader *reader, const char *token);
bool expect(struct reader *reader, const char *token);

bool at_line_end(struct reader *reader);
bool expect_line_end(struct reader *reader);
void next_line(struct reader *reader);
/* Moves to the first statement at or after the cursor; false at the end of the text. */
bool next_statement(struct reader *reader);

/* Reads a word of at least one character: letters, digits and the characters in `also`; read_name: those of names.
 * `what` names the word in messages. */
bool read_word(struct reader *reader, const char *also, const char *what, char word[MAX_WORD]);
bool read_name(struct reader *reader, const char *what, char word[MAX_WORD]);
/* Reads a string in quotes. *text is allocated in the arena. */
bool read_string(struct reader *reader, const char **text);
/* numbers.c */

/* An integer, or what depends on open sizes: a name in quotes, or an expression in parentheses. */
bool read_int(struct reader *reader, int64_t least, int64_t most, const char *what, int64_t *value);
/* Reads a list such as [1, -2, 3 * "batch"] of at most `most` integers, each at least `least`; *n is their number. */
bool read_ints(struct reader *reader, int most, int64_t least, int *n, const int64_t **ints);

/* Statements of open sizes (ir/open.h). */
bool read_size(struct reader *reader);
bool read_extent(struct reader *reader);
bool read_next(struct reader *reader);
bool read_limit(struct reader *reader);
/* True if a number that depends on sizes begins here: there are sizes, and it is a name, in parentheses or a call. */
bool starts_extent(struct reader *reader);
/* Reads a number, a name, a call, or an expression in parentheses. */
bool read_factor(struct reader *reader, int64_t *value);
/* Reads sums of products of them. */
bool read_expression(struct reader *reader, int64_t *value);

/* values.c */

bool read_dtype(struct reader *reader, enum rt_dtype *dtype);
/* Reads a type such as f32[2,8] into dtype, ndim and dims. */
bool read_type(struct reader *reader, struct tensor *tensor);

bool read_axis(struct reader *reader, int *axis);
/* Reads blocks and grain, with `separator` before each. */
bool read_cut(struct reader *reader, const char *separator, int64_t *blocks, int64_t *grain);
/* True if blocks * grain divides the extent, as rt_cut requires. */
bool cut_fits(int64_t extent, int64_t blocks, int64_t grain);
/* Reads a layout after its "{": {axis:part(dim,blocks,grain), axis:partial(sum), axis:own, axis:flat,
 * axis:window(..)}. Of cuts of one dimension the outermost comes first. check_layout: that it is one of the tensor. */
bool read_layout(struct reader *reader, struct layout *layout);
bool check_layout(struct reader *reader, const struct definition *definition, const struct tensor *tensor);

/* Reads %7 "name" and adds it to r->defined; NULL after an error. */
struct definition *read_definition(struct reader *reader);
/* Reads %7, a tensor that was defined before; *tensor is its id. */
bool read_use(struct reader *reader, int *tensor);
/* Defines the statement's tensors. See Note [Statements in error]. */
void end_statement(struct reader *reader, bool good);

/* statements.c: each reads a statement after its keyword */

bool read_mesh(struct reader *reader);
bool read_chunks(struct reader *reader);
bool read_file(struct reader *reader);
bool read_model(struct reader *reader);
bool read_from(struct reader *reader);
bool read_input(struct reader *reader);
bool read_weight(struct reader *reader);
bool read_const(struct reader *reader);
bool read_output(struct reader *reader);
bool read_update(struct reader *reader);
bool read_state(struct reader *reader);
bool read_control(struct reader *reader);
bool read_parameter(struct reader *reader);

/* Reads the word of a number, such as 0x1.8p+1, inf or -7. */
bool read_number(struct reader *reader, char word[MAX_WORD]);

/* schedules.c */

bool read_phase(struct reader *reader, enum phase *phase);
bool read_segment(struct reader *reader);
bool read_schedule(struct reader *reader);
/* A row of the last schedule. */
bool read_run(struct reader *reader);
bool read_post(struct reader *reader);
bool read_wait(struct reader *reader);

/* operators.c */

bool read_operator(struct reader *r);
/* Checks the gradients of all operators that the text declares. Call it after the last statement. */
bool check_operators(struct reader *r);

/* nodes.c */

bool read_node(struct reader *reader);

#endif
