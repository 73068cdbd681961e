/* Open sizes in generated code (ir/open.h): B * T of sizes that are chosen at run time.
 *
 * Sources are written as for fixed sizes, with the numbers of the specimen; extents_spell then writes every number that
 * depends on sizes as an expression, and declares the names in it where the function begins. What sizes follow from a
 * call is a table of the program, struct PREFIX_extents: the sizes, and what is made of them by more than a product. */
#ifndef CODEGEN_EXTENTS_H
#define CODEGEN_EXTENTS_H

#include "codegen/text/sizes.h"
#include "codegen/text/tmpl.h"

struct extents;

/* NULL if nothing is open. */
struct extents *extents_new(const struct graph *graph, const struct sizes *sizes, const char *prefix);

/* The number as an entry of a table that the runtime reads: digits, or RT_EXTENT(k) for the k-th of the extents.
 * extents: may be NULL. */
const char *extents_entry(struct extents *extents, struct arena *arena, int64_t value);
/* The number in a comment: digits, or an expression of the sizes' names. */
const char *extents_said(struct extents *extents, struct arena *arena, int64_t value);

/* A line of a template where a function begins: `access` is how the function reaches its extents. */
const char *extents_mark(struct arena *arena, const char *access);
/* Of a function that gets its extents as values, one after the other, since it cannot reach the program's: what stands
 * behind the last parameter, where numbers have the type, and behind the last argument of its call, in the next
 * function. An extent that grows from step to step is passed as the place of its value (rt_grown in
 * runtime/cuda/launch.cuh). */
const char *extents_parameters(struct arena *arena, const char *type);
const char *extents_arguments(struct arena *arena);
/* A number that no size enters, whatever its value: an offset in an arena. */
const char *extents_fixed(const struct graph *graph, int64_t value);

/* True if sizes grow from step to step. extents: may be NULL. */
bool extents_grow(const struct extents *extents);

/* The source with expressions in place of numbers. names: those of sizes that the source uses. */
const char *extents_spell(struct extents *extents, const struct size_names *names, const char *text);

/* Binds the lists "open_sizes" and "extents" of model.h and model.c, of all extents that were used so far. */
void extents_bind(struct extents *extents, struct tmpl_env *env);

#endif
