/* Reading a table of published runs: CSV, and the ways in which publications spell the same thing. */
#ifndef FRONTEND_CLI_ROWS_TEXT_H
#define FRONTEND_CLI_ROWS_TEXT_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "ir/base/vec.h"

struct fields {
    VEC(const char *) all;
};

/* The fields of the line at *at (RFC 4180; lines may end with CR LF). *at is moved behind the line, and *line is raised
 * by the line ends in it. False: a quoted field does not end. */
bool rows_read_line(struct arena *arena, const char **at, int *line, struct fields *fields);

/* A number in [0, 1e15], with K, M, B or T behind it for a thousand to a trillion; "1,024" and "~1024" too. 0 for an
 * empty text and words such as "n/a". False: the text is something else. */
bool rows_read_number(const char *text, double *number);

/* The text without spaces at its ends; in lower case. */
const char *rows_trim(struct arena *arena, const char *text);
const char *rows_lower(struct arena *arena, const char *text);

/* True if the text has one of the words between |. */
bool rows_names_one(const char *text, const char *words);

/* True if the text mentions the word, in lower case, whatever spaces, hyphens and underscores stand in it: "zb-h1" and
 * "zb h1" mention "zbh1". */
bool rows_mentions(const char *text, const char *word);

/* A type in lower case by its shortest name: "bfloat16" is "bf16", "float8" is "fp8". */
const char *rows_spell_precision(struct arena *arena, const char *text);

/* The stage of ZeRO that a text in lower case names, such as "zero-3", "zero3", "zero stage 2"; -1: none. */
int rows_zero_stage(const char *text);

/* Gigabits per second that a node exchanges with others, as a text states it: "800 Gb/s RDMA", "4x100G", "8xHDR"; 0: it
 * does not, or may state that of one adapter among several ("400 Gb/s"). */
double rows_node_network(const char *text);

/* True if both texts name the same device: "H100-80", "NVIDIA H100 80GB SXM5", "h100". One may leave out the size of
 * the memory. */
bool rows_same_device(const char *known, const char *given);

#endif
