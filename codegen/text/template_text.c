#include <string.h>

#include "codegen/text/embedded.h"
#include "codegen/text/tmpl.h"
#include "ir/base/diag.h"

const char *template_text(const char *path) {
    if (!path) BUG("a target without a template that it needs (codegen/target/target.h)");
    for (const struct embedded *e = embedded; e->path; e++)
        if (strcmp(e->path, path) == 0) return e->text;
    BUG("no template '%s'", path);
}
