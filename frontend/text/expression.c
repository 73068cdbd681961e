/* Regular expressions of tokenizer.json are Oniguruma's (doc/RE of version 6.9, syntax ONIG_SYNTAX_ONIGURUMA, UTF-8).
 * Most of them mean the same to PCRE2; what means something else there is written otherwise:
 *
 *   \s \S              White_Space; to PCRE2 also U+180E
 *   \w \W \b \B        Alphabetic, M, Nd, Pc and a few numbers; to PCRE2 L, N and _
 *   \h \H \v \uHHHH    a hexadecimal digit, U+000B, a character
 *   {n,m}+ {n}? {,n}   repeated again, optional, {0,n}
 *   (?m:..)            `.` matches \n too
 *   \p{Han}            the script alone, without Script_Extensions
 *   [[:alpha:]]        Unicode's classes
 *
 * Everything that is not known here is refused: nested classes and intersections, other letters after a backslash,
 * calls, conditions, absent operators, callouts; and regardless of case, characters that Oniguruma takes for several,
 * such as \u00df for ss. */
#include "frontend/text/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define WORD  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define W     WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* outside of classes: and numbers of ISO 8859-1 */
#define HEX   "0-9a-fA-F"

enum { MOST_GROUPS = 200 };

struct translation {
    struct arena *arena;
    const char *at, *end;
    struct strbuf out;
    size_t atom; /* where the last repeatable thing begins in `out` */
    struct group {
        size_t begin;      /* in `out` */
        bool caseless;     /* around it */
    } groups[MOST_GROUPS]; /* those that are open */
    int ngroups;
    bool caseless;
    bool (*is_script)(const char *name);
    const char **why;
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct translation *t, const char *format, ...) {
    ARENA_PRINT_TO(*t->why, t->arena, format);
    return false;
}

static bool ahead(const struct translation *t, const char *text) {
    const size_t length = strlen(text);
    return (size_t)(t->end - t->at) >= length && memcmp(t->at, text, length) == 0;
}

/* Escapes whose meaning differs: outside of a class, and in one (NULL: not there). */
static const struct escape {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    {'s', "[" SPACE "]", SPACE},
    {'S', "[^" SPACE "]", "\\S\\x{180e}"},
    {'w', "[" W "]", WORD},
    {'W', "[^" W "]", NULL},
    {'b', "(?:(?<=[" W "])(?![" W "])|(?<![" W "])(?=[" W "]))", "\\x08"},
    {'B', "(?:(?<=[" W "])(?=[" W "])|(?<![" W "])(?![" W "]))", NULL},
    {'h', "[" HEX "]", HEX},
    {'H', "[^" HEX "]", NULL},
    {'v', "\\x0b", "\\x0b"},
    {'d', "\\d", "\\d"},
    {'D', "\\D", "\\D"},
    {'t', "\\t", "\\t"},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'f', "\\f", "\\f"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
    {'R', "\\R", NULL},
    {'N', "[^\\n]", NULL},
    {'O', "(?s:.)", NULL},
};

/* The classes of [[:NAME:]]. */
static const struct posix_class {
    const char *name, *members;
} posix_classes[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x00-\\x7f"},
    {"blank", "\\t\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", SPACE},
    {"upper", "\\p{Uppercase}"},
    {"word", WORD},
    {"xdigit", HEX},
};

/* Oniguruma also knows general categories by their long names. */
static const struct category {
    const char *name, *letters;
} categories[] = {
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Unassigned", "Cn"},
    {"Private_Use", "Co"},
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Titlecase_Letter", "Lt"},
    {"Uppercase_Letter", "Lu"},
    {"Mark", "M"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Close_Punctuation", "Pe"},
    {"Final_Punctuation", "Pf"},
    {"Initial_Punctuation", "Pi"},
    {"Other_Punctuation", "Po"},
    {"Open_Punctuation", "Ps"},
    {"Symbol", "S"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Math_Symbol", "Sm"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Space_Separator", "Zs"},
};

/* \p{NAME}, \p{^NAME} and \P..; `at` is behind the p. */
static bool property(struct translation *t, bool negative) {
    char name[48];
    size_t n = 0;
    const char *close = ahead(t, "{") ? memchr(t->at, '}', (size_t)(t->end - t->at)) : NULL;
    if (!close) return refuse(t, "\\p without a name in braces");
    t->at++;
    if (*t->at == '^') t->at++, negative = !negative;
    for (; n + 1 < sizeof name && (isalnum((unsigned char)*t->at) || (*t->at && strchr("_ -", *t->at))); t->at++)
        name[n++] = *t->at;
    if (t->at++ != close || n == 0) return refuse(t, "a property of characters with an unknown name");
    name[n] = 0;
    const char *known = name;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strcasecmp(name, categories[i].name) == 0) known = categories[i].letters;
    for (size_t i = 0; i < sizeof posix_classes / sizeof *posix_classes; i++)
        if (strcasecmp(name, posix_classes[i].name) == 0 && strcmp(posix_classes[i].name, "alpha") != 0)
            return refuse(t, "\\p{%s}", name);
    const bool script = n > 2 && known == name && t->is_script(name);
    strbuf_printf(&t->out, "\\%c{%s%s}", negative ? 'P' : 'p', script ? "sc:" : "", known);
    return true;
}

/* Hexadecimal digits, at least `least` and at most `most` of them; -1: there are not. */
static int32_t hexadecimal(struct translation *t, int least, int most) {
    int32_t code = 0;
    int n = 0;
    for (; n < most && t->at < t->end && isxdigit((unsigned char)*t->at); n++, t->at++) {
        const char digit[] = {*t->at, 0};
        code = code << 4 | (int32_t)strtol(digit, NULL, 16);
    }
    return n < least ? -1 : code;
}

/* \xHH, \x{H..} and \uHHHH; `at` is behind the letter. */
static bool character(struct translation *t, char letter) {
    int32_t code;
    if (letter == 'x' && t->at < t->end && *t->at == '{') {
        t->at++;
        code = hexadecimal(t, 1, 6);
        if (t->at == t->end || *t->at++ != '}') code = -1;
    } else {
        code = letter == 'u' ? hexadecimal(t, 4, 4) : hexadecimal(t, 1, 2);
        if (letter == 'x' && code >= 0x80) return refuse(t, "\\x with a byte that is no character");
    }
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return refuse(t, "\\%c without a character", letter);
    strbuf_printf(&t->out, "\\x{%x}", (unsigned)code);
    return true;
}

/* What follows a backslash. */
static bool escape(struct translation *t, bool inside) {
    if (++t->at == t->end) return refuse(t, "a backslash at the end");
    const char letter = *t->at++;
    if (letter == 'p' || letter == 'P') return property(t, letter == 'P');
    if (letter == 'x' || letter == 'u') return character(t, letter);
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (escapes[i].letter != letter) continue;
        const char *meaning = inside ? escapes[i].inside : escapes[i].outside;
        if (!meaning) return refuse(t, "\\%c in a class", letter);
        strbuf_puts(&t->out, meaning);
        return true;
    }
    if (isalpha((unsigned char)letter) || letter == '0' || (inside && isdigit((unsigned char)letter)))
        return refuse(t, "\\%c", letter);
    if ((unsigned char)letter >= 0x80)
        t->at--; /* a character of several bytes needs none */
    else
        strbuf_putc(&t->out, '\\'), strbuf_putc(&t->out, letter);
    return true;
}

/* [:NAME:] in a class. */
static bool posix(struct translation *t) {
    for (size_t i = 0; i < sizeof posix_classes / sizeof *posix_classes; i++) {
        const char *text = arena_printf(t->arena, "[:%s:]", posix_classes[i].name);
        if (!ahead(t, text)) continue;
        t->at += strlen(text);
        strbuf_puts(&t->out, posix_classes[i].members);
        return true;
    }
    return refuse(t, "'[' in a class");
}

/* A character that stands for itself. */
static bool literal(struct translation *t) {
    static const char *const several[] = {"ss", "ff", "fi", "fl", "st"};
    int32_t code;
    const size_t length = (size_t)utf8_get(t->at, &code);
    for (size_t i = 0; t->caseless && i < sizeof several / sizeof *several; i++)
        if (t->end - t->at > 1 && strncasecmp(t->at, several[i], 2) == 0)
            return refuse(t, "'%s' regardless of case", several[i]);
    if (t->caseless && code >= 0x80 && (unicode_is_mark(code) || unicode_folds_to_several(code)))
        return refuse(t, "'%.*s' regardless of case", (int)length, t->at);
    strbuf_add(&t->out, t->at, length);
    t->at += length;
    return true;
}

static bool class(struct translation *t) {
    strbuf_putc(&t->out, *t->at++);
    if (ahead(t, "^")) strbuf_putc(&t->out, *t->at++);
    for (bool first = true; t->at < t->end; first = false) {
        if (*t->at == ']' && !first) {
            strbuf_putc(&t->out, *t->at++);
            return true;
        }
        if (ahead(t, "&&")) return refuse(t, "'&&' in a class");
        if (*t->at == '\\') {
            if (!escape(t, true)) return false;
        } else if (*t->at == '[') {
            if (!posix(t)) return false;
        } else if (!literal(t)) {
            return false;
        }
    }
    return refuse(t, "a class without ']'");
}

/* Flags of (?..:: i, and m, which is `s` in PCRE2. */
static bool flags(struct translation *t) {
    bool on = true;
    strbuf_puts(&t->out, "(?");
    for (; t->at < t->end && strchr("im-", *t->at); t->at++) {
        strbuf_putc(&t->out, *t->at == 'm' ? 's' : *t->at);
        if (*t->at == '-') on = false;
        if (*t->at == 'i') t->caseless = on;
    }
    if (!ahead(t, ":") && !ahead(t, ")")) return refuse(t, "other flags than i and m");
    if (ahead(t, ")") && t->groups[--t->ngroups].begin) /* they would be for what follows in the group around it */
        return refuse(t, "flags in the middle of an expression");
    strbuf_putc(&t->out, *t->at++);
    return true;
}

static bool open_group(struct translation *t) {
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    if (t->ngroups == MOST_GROUPS) return refuse(t, "more than %d groups in each other", MOST_GROUPS);
    t->groups[t->ngroups++] = (struct group){t->out.length, t->caseless};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!ahead(t, kinds[i])) continue;
        strbuf_puts(&t->out, kinds[i]);
        t->at += strlen(kinds[i]);
        return true;
    }
    if (ahead(t, "(?i") || ahead(t, "(?m") || ahead(t, "(?-")) return t->at += 2, flags(t);
    if (ahead(t, "(?") || ahead(t, "(*"))
        return refuse(t, "a group '%.*s'",
                      ahead(t, "(?") && t->end - t->at > 2 && isgraph((unsigned char)t->at[2]) ? 3 : 2, t->at);
    strbuf_putc(&t->out, *t->at++);
    return true;
}

static bool close_group(struct translation *t) {
    if (!t->ngroups) return refuse(t, "')' without '('");
    t->atom = t->groups[--t->ngroups].begin;
    t->caseless = t->groups[t->ngroups].caseless;
    strbuf_putc(&t->out, *t->at++);
    return true;
}

/* Puts the last atom and its repetition into a group, which can be repeated again. */
static void wrap(struct translation *t) {
    const char *repeated = arena_printf(t->arena, "(?:%s)", t->out.text + t->atom);
    t->out.length = t->atom;
    strbuf_puts(&t->out, repeated);
}

/* {n}, {n,}, {,m} and {n,m}; false if the brace is a character. */
static bool interval(struct translation *t) {
    char bounds[2][8] = {"", ""};
    const char *at = t->at + 1;
    int which = 0;
    for (; at < t->end && (isdigit((unsigned char)*at) || (*at == ',' && which == 0)); at++) {
        const size_t n = strlen(bounds[which]);
        if (*at == ',')
            which = 1;
        else if (n + 1 < sizeof bounds[0])
            bounds[which][n] = *at;
        else
            return false;
    }
    if (at == t->end || *at != '}' || (!*bounds[0] && !*bounds[1])) return false;
    const bool exact = which == 0;
    t->at = at + 1;
    strbuf_printf(&t->out, "{%s%s%s}", *bounds[0] ? bounds[0] : "0", exact ? "" : ",", bounds[1]);
    if (ahead(t, "+") || (exact && ahead(t, "?"))) wrap(t);
    return true;
}

static bool step(struct translation *t) {
    const char c = *t->at;
    if (c == '(') return open_group(t);
    if (c == ')') return close_group(t);
    if (c == '{' && interval(t)) return true;
    if (strchr("?*+|^$", c) && c) {
        strbuf_putc(&t->out, *t->at++);
        return true;
    }
    t->atom = t->out.length;
    if (c == '[') return class(t);
    if (c == '\\') return escape(t, false);
    if (c == '{' || c == '}' || c == ']' || c == 0) {
        strbuf_printf(&t->out, "\\x{%x}", (unsigned)c);
        t->at++;
        return true;
    }
    return literal(t);
}

const char *expression_for_pcre2(struct arena *arena, struct span expression, bool (*is_script)(const char *name),
                                 const char **why) {
    struct translation t = {.arena = arena,
                            .at = expression.at,
                            .end = expression.at + expression.bytes,
                            .is_script = is_script,
                            .why = why};
    strbuf_init(&t.out, arena);
    while (t.at < t.end)
        if (!step(&t)) return NULL;
    if (t.ngroups) return refuse(&t, "'(' without ')'"), NULL;
    return strbuf_text(&t.out);
}
