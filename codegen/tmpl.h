/* Templates: whole files that look like what they make.
 *
 *   ${name}            the value bound to name
 *   @for x in list     repeats the lines up to @end for each entry of the list, whose names are then visible
 *   @if name           keeps the lines up to @else or @end if name is bound to a text that is not empty
 *   @# remark          left out
 *
 * A directive owns its line. A value of several lines keeps the indentation of the line its hole is in. Names bound
 * inside a list entry hide outer ones. An unbound name is a bug of rankc: it ends with template and line.
 */
#ifndef CODEGEN_TMPL_H
#define CODEGEN_TMPL_H

#include "ir/base/str.h"

struct tmpl_env;

struct tmpl_env *tmpl_env(struct arena *arena, const struct tmpl_env *outer);
void tmpl_set(struct tmpl_env *env, const char *name, const char *text);
void tmpl_setf(struct tmpl_env *env, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A new entry of the list `name`; the list exists (and may be empty) after tmpl_list. */
void tmpl_list(struct tmpl_env *env, const char *name);
struct tmpl_env *tmpl_entry(struct tmpl_env *env, const char *name);

/* The template's text for the bindings. `name` is for messages. */
const char *tmpl_fill(struct arena *arena, const char *name, const char *text, const struct tmpl_env *env);

/* A file of templates/ as it was built in; BUG if there is none. */
const char *template_text(const char *path);

#endif
