/* Templates: whole files that look like the text they generate.
 *
 *   ${name}            the value bound to name
 *   @for x in list     repeats the lines up to @end for each entry of the list, whose bindings are then visible
 *   @if name           keeps the lines up to @else or @end if name is bound to a text that is not empty
 *   @# remark          a comment, which is not copied
 *
 * A directive is alone on its line. Further lines of a value get the indentation of the line that contains ${name}.
 * Bindings of a list entry hide outer ones. A name without binding is a bug in rankc: BUG with template and line.
 */
#ifndef CODEGEN_TMPL_H
#define CODEGEN_TMPL_H

#include "ir/base/str.h"

struct tmpl_env;

/* New bindings; names that are not found in them are looked up in `outer` (NULL: none). */
struct tmpl_env *tmpl_env(struct arena *arena, const struct tmpl_env *outer);
/* Binds `name` to a copy of the text. */
void tmpl_set(struct tmpl_env *env, const char *name, const char *text);
void tmpl_setf(struct tmpl_env *env, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Binds `name` to an empty list. tmpl_entry appends an entry to the list, and creates the list if there is none. */
void tmpl_list(struct tmpl_env *env, const char *name);
struct tmpl_env *tmpl_entry(struct tmpl_env *env, const char *name);

/* Fills the template `text` with the bindings. `name` is that of the template, for messages. */
const char *tmpl_fill(struct arena *arena, const char *name, const char *text, const struct tmpl_env *env);

/* The text of a file in templates/, which is part of the executable; BUG if there is none. */
const char *template_text(const char *path);

#endif
