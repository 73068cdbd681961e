#include "frontend/cli/show/show.h"

#include <string.h>

#include "codegen/text/tmpl.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"

/* JSON as the content of a script element. Outside of strings it has none of these characters, and the writer of JSON
 * leaves only ASCII, so that the text has no other way to end the element or to begin a comment. */
static const char *as_script_data(struct arena *arena, const char *json) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (; *json; json++)
        if (strchr("<>&", *json))
            strbuf_printf(&out, "\\u%04x", (unsigned)*json);
        else
            strbuf_putc(&out, *json);
    return strbuf_text(&out);
}

bool page_write(struct arena *arena, const char *path, const char *json, struct rt_reason *why) {
    static const char name[] = "page/plan.html.in";
    struct tmpl_env *env = tmpl_env(arena, NULL);
    tmpl_set(env, "data", as_script_data(arena, json));
    const char *page = tmpl_fill(arena, name, template_text(name), env);
    const struct rt_piece piece = {page, strlen(page)};
    return rt_file_write(path, &piece, 1, why);
}
