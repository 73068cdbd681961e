#include <string.h>

#include "codegen/embedded.h"
#include "codegen/tmpl.h"
#include "ir/base/diag.h"

const char *template_text(const char *path) {
    if (!path) BUG("a target without a template that it needs (codegen/target/target.h)");
    for (const struct embedded *e = embedded; e->path; e++)
        if (strcmp(e->path, path) == 0) return e->text;
    BUG("no template '%s'", path);
}
