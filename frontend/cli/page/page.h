/* Plans as web pages. A page is one file that loads nothing: templates/page/plan.html.in with its data in it. */
#ifndef FRONTEND_CLI_PAGE_PAGE_H
#define FRONTEND_CLI_PAGE_PAGE_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "runtime/base/text/reason.h"

/* Writes the page of a plan to `path`. json: what show --json prints, in which names may be any bytes; none of them can
 * end the element that holds the data or add one to the page. Replaces the file in one step. False, and the reason in
 * *why, if it cannot be written. */
bool page_write(struct arena *arena, const char *path, const char *json, struct rt_reason *why);

#endif
