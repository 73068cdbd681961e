/* Characters that PCRE2 does not know yet. Its Unicode is that of its release, 14 in 10.40 to 10.42, and to it a
 * character that came later has no property but that of being unassigned. */
#include "frontend/text/pattern.h"

#include <string.h>
#include <strings.h>

#include "ir/base/str.h"

static const struct newer {
    const char *property;
    int32_t first, last;
} rows[] = {
#define NEWER(property, first, last) {property, first, last},
#include "frontend/text/newer.def"
#undef NEWER
};
enum { ROWS = sizeof rows / sizeof *rows };

/* A property where it stands in an expression: \p{NAME}, \P{NAME}, \d or \D. */
struct property {
    struct span name;
    bool negative;
    size_t bytes; /* 0: there is none */
};

static struct property property_at(const char *at) {
    static const char digits[] = "Nd";
    struct property property = {.negative = at[1] == 'P' || at[1] == 'D'};
    if (at[1] == 'd' || at[1] == 'D') {
        property.name = (struct span){digits, strlen(digits)};
        property.bytes = 2;
    } else if ((at[1] == 'p' || at[1] == 'P') && at[2] == '{') {
        property.name = (struct span){at + 3, strcspn(at + 3, "}")};
        property.bytes = property.name.bytes + 4;
    }
    return property;
}

/* A category of one letter has those of two that begin with it. */
static bool is_of(const struct newer *row, struct span name) {
    return strncasecmp(row->property, name.at, name.bytes) == 0 &&
           strlen(row->property) == (name.bytes == 1 ? 2 : name.bytes);
}

/* Puts the property, in a class or as one. In a class what is not of it stays as it is: nothing can be taken from a
 * member there. */
static void put_property(struct strbuf *out, const char *at, struct property property, bool inside) {
    if (inside && property.negative) {
        strbuf_add(out, at, property.bytes);
        return;
    }
    if (!inside) strbuf_puts(out, property.negative ? "[^" : "[");
    strbuf_printf(out, "\\p{%.*s}", (int)property.name.bytes, property.name.at);
    for (int i = 0; i < ROWS; i++)
        if (is_of(&rows[i], property.name))
            strbuf_printf(out, "\\x{%x}-\\x{%x}", (unsigned)rows[i].first, (unsigned)rows[i].last);
    if (!inside) strbuf_putc(out, ']');
}

/* The bytes that begin a class: its bracket, with what has another meaning right behind it. */
static size_t begin_of_class(const char *at) {
    size_t bytes = at[1] == '^' ? 2 : 1;
    return at[bytes] == ']' ? bytes + 1 : bytes;
}

const char *expression_with_newer(struct arena *arena, const char *expression) {
    bool inside = false;
    size_t bytes;
    struct strbuf out = {.arena = arena};
    for (const char *at = expression; *at; at += bytes) {
        const struct property property = *at == '\\' ? property_at(at) : (struct property){.bytes = 0};
        bytes = property.bytes ? property.bytes : *at == '\\' ? 2 : *at == '[' && !inside ? begin_of_class(at) : 1;
        if (property.bytes)
            put_property(&out, at, property, inside);
        else
            strbuf_add(&out, at, bytes);
        inside = *at == '[' || (inside && *at != ']');
    }
    return strbuf_text(&out);
}
