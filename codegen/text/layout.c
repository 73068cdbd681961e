#include "codegen/text/layout.h"

#include <ctype.h>
#include <string.h>

#include "ir/base/str.h"

/* Skips a string, character or comment that begins at `c`. Returns the text after it; `c` if none begins there. */
static const char *skip_quoted(const char *c) {
    if (c[0] == '/' && c[1] == '/') return c + strcspn(c, "\n");
    if (c[0] == '/' && c[1] == '*') {
        const char *end = strstr(c + 2, "*/");
        return end ? end + 2 : c + strlen(c);
    }
    if (*c != '"' && *c != '\'') return c;
    const char quote = *c++;
    while (*c && *c != quote && *c != '\n') c += *c == '\\' && c[1] ? 2 : 1;
    return *c == quote ? c + 1 : c;
}

/* Skips a value that is zero, or braces around such values. Returns the text after it; NULL if the text is something
 * else. */
static const char *skip_zero(const char *c) {
    static const char *const zeros[] = {"0", "0x0", "NULL", "false"};
    if (*c == '{') {
        do c = skip_zero(c + 1 + strspn(c + 1, " "));
        while (c && *c == ',');
        return c && *c == '}' ? c + 1 : NULL;
    }
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        const size_t length = strlen(zeros[i]);
        if (strncmp(c, zeros[i], length) == 0 && strchr(",}", c[length])) return c + length;
    }
    return NULL;
}

/* What is behind ".member = 0"; NULL: the text is something else. */
static const char *skip_zero_member(const char *c) {
    if (*c != '.' || !islower((unsigned char)c[1])) return NULL;
    while (isalnum((unsigned char)*++c) || *c == '_') continue;
    return strncmp(c, " = ", 3) == 0 ? skip_zero(c + 3) : NULL;
}

/* Removes the members that are zero. The comma after a member goes too, and its line if nothing else is on it. For the
 * last member of a list, the comma before it goes. A member that is alone in its braces stays. */
static const char *without_zeros(struct arena *arena, const char *text) {
    struct strbuf out = {.arena = arena};
    for (const char *c = text; *c;) {
        const char *behind = skip_zero_member(c), *quoted = skip_quoted(c);
        const bool last = behind && *behind == '}', first = out.length && out.text[out.length - 1] == '{';
        if (behind && !last) {
            c = behind + 1 + strspn(behind + 1, " \n");
        } else if (last && !first) {
            while (strchr(", \n", out.text[out.length - 1])) out.length--;
            c = behind;
        } else {
            const size_t length = quoted > c ? (size_t)(quoted - c) : 1;
            strbuf_add(&out, c, length);
            c += length;
        }
    }
    return strbuf_text(&out);
}

enum {
    INDENT = 4,
    LEAST_GAIN = 16, /* columns: a break that gains fewer is not made */
    MOST_BREAKS = 4096,
    MOST_DEPTH = 64
};

/* A blank at which a line of code may be broken. `level`: twice the number of brackets around it, and 1 more behind an
 * operator; the lower, the rather. */
struct gap {
    const char *at;
    int level;
};

/* True for the operators of a binary expression and of an assignment, with blanks on both sides. */
static bool is_operator(const char *word, const char *end) {
    return word < end && strspn(word, "+-*/%=?:&|<>!") >= (size_t)(end - word);
}

static int find_gaps(const char *line, const char *end, struct gap *gaps) {
    int depth = 0, n = 0;
    const char *word = line;
    for (const char *c = line; c < end && n < MOST_BREAKS;) {
        const char *quoted = skip_quoted(c);
        if (quoted > c) {
            c = quoted;
            continue;
        }
        depth += strchr("([{", *c) != NULL, depth -= strchr(")]}", *c) != NULL;
        if (*c == ' ' && c > line) {
            if (c[-1] == ',' || c[-1] == ';') gaps[n++] = (struct gap){c, 2 * depth};
            if (is_operator(word, c)) gaps[n++] = (struct gap){c, 2 * depth + 1};
        }
        c++;
        if (c[-1] == ' ') word = c;
    }
    return n;
}

/* Columns from gap `i` to the next one of at most that level. */
static int columns_behind(const struct gap *gaps, int n, int i, int level, const char *end) {
    int next = i + 1;
    while (next < n && gaps[next].level > level) next++;
    return (int)((next < n ? gaps[next].at : end) - gaps[i].at);
}

/* True if the line is broken at the gap, which is at `column`: what follows does not fit, and is better placed on a
 * line of its own. */
static bool breaks_at(const struct gap *gaps, int n, int i, int column, int indent, const char *end) {
    const int whole = columns_behind(gaps, n, i, gaps[i].level, end), word = columns_behind(gaps, n, i, INT32_MAX, end);
    if (column + whole <= LAYOUT_COLUMNS || column - indent < LEAST_GAIN) return false;
    const bool fits = indent + whole - 1 <= LAYOUT_COLUMNS;
    return fits || gaps[i].level % 2 == 0 || column + word > LAYOUT_COLUMNS;
}

/* Appends [text, end). For each bracket that it opens, notes the indentation of the bracket's line; for braces within
 * an argument it notes a deeper one, so that their members are not taken for further arguments. */
static void put_piece(struct strbuf *out, const char *text, const char *end, int indent, int *opened, int *depth) {
    strbuf_add(out, text, (size_t)(end - text));
    for (const char *c = text; c < end;) {
        const char *quoted = skip_quoted(c);
        if (strchr("([{", *c) && *depth < MOST_DEPTH) {
            opened[*depth + 1] = *c == '{' && *depth ? opened[*depth] + INDENT : indent;
            ++*depth;
        }
        if (strchr(")]}", *c) && *depth) --*depth;
        c = quoted > c ? quoted : c + 1;
    }
}

/* A line that follows a break has INDENT blanks more than the one in which the innermost bracket around it begins. */
static void put_code(struct strbuf *out, const char *line, const char *end) {
    struct gap gaps[MOST_BREAKS];
    const int margin = (int)strspn(line, " "), n = find_gaps(line + margin, end, gaps);
    int opened[MOST_DEPTH + 1] = {margin}, depth = 0, indent = margin, column = n ? (int)(gaps[0].at - line) : 0;
    if (end[-1] == '{') opened[0] += INDENT; /* what follows is indented itself */
    put_piece(out, line, n ? gaps[0].at : end, opened[0], opened, &depth);
    for (int i = 0; i < n; i++) {
        const char *next = i + 1 < n ? gaps[i + 1].at : end;
        const bool listed = !gaps[i].level && end[-1] != ';'; /* without brackets around it */
        const int below = opened[depth] + (listed ? 0 : INDENT);
        const bool breaks = breaks_at(gaps, n, i, column, below, end);
        if (breaks)
            strbuf_printf(out, "\n%*s", indent = below, "");
        else
            strbuf_putc(out, ' ');
        column = (breaks ? indent - 1 : column) + (int)(next - gaps[i].at);
        put_piece(out, gaps[i].at + 1, next, indent, opened, &depth);
    }
    strbuf_putc(out, '\n');
}

/* Writes words in lines that begin with `margin` blanks and `mark`. */
static void put_words(struct strbuf *out, int margin, const char *mark, const char *words, const char *end) {
    int column = 0;
    while (words < end) {
        const int length = (int)strcspn(words, " \n");
        if (column && column + 1 + length > LAYOUT_COLUMNS) strbuf_putc(out, '\n'), column = 0;
        const size_t before = out->length;
        strbuf_printf(out, column ? " " : "%*s%s", margin, "", mark);
        strbuf_add(out, words, (size_t)length);
        column += (int)(out->length - before);
        words += length;
        words += words < end && *words == ' ';
    }
    strbuf_putc(out, '\n');
}

/* The comment behind the code of a line; its end if there is none. */
static const char *comment_of(const char *line, const char *end) {
    for (const char *c = line; c < end;) {
        if (c[0] == '/' && c[1] == '/') return c;
        const char *quoted = skip_quoted(c);
        c = quoted > c ? quoted : c + 1;
    }
    return end;
}

/* Writes a line that is too long. A comment behind its code goes below the code. */
static void put_long_line(struct strbuf *out, const char *line, const char *end) {
    const int margin = (int)strspn(line, " ");
    const char *first = line + margin, *comment = comment_of(line, end), *code_end = comment;
    if (comment == first) return put_words(out, margin, "// ", comment + 3, end);
    while (code_end[-1] == ' ') code_end--;
    if (code_end - line > LAYOUT_COLUMNS)
        put_code(out, line, code_end);
    else
        strbuf_printf(out, "%.*s\n", (int)(code_end - line), line);
    if (comment < end) put_words(out, margin + INDENT, "// ", comment + 3, end);
}

/* A line of a comment in several lines. Returns where the words begin that do not fit. */
static const char *put_comment_line(struct strbuf *out, int margin, const char *mark, const char *words) {
    const int room = LAYOUT_COLUMNS - margin - (int)strlen(mark) - 1;
    const char *end = words + strlen(words), *cut = end;
    if (end - words > room) {
        for (cut = words + room; cut > words && *cut != ' ';) cut--;
        if (cut == words) cut += strcspn(words, " ");
    }
    strbuf_printf(out, "%*s%s%s%.*s\n", margin, "", mark, cut > words ? " " : "", (int)(cut - words), words);
    return cut + strspn(cut, " ");
}

/* Writes a comment of several lines. Words that do not fit in a line go to the next line; before an empty line or a
 * list they get a line of their own. Returns the text after the comment. */
static const char *put_comment(struct strbuf *out, const char *text) {
    const int margin = (int)strspn(text, " ");
    const char *end = skip_quoted(text + margin), *rest = "", *mark = "/*";
    while (text < end) {
        const char *body = text + margin + strlen(mark), *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        body += *body == ' ';
        const char *own = arena_printf(out->arena, "%.*s", (int)(stop - body), body);
        if (*rest && (!*own || *own == ' ')) {
            put_comment_line(out, margin, mark, rest);
            rest = "";
        }
        rest = put_comment_line(out, margin, mark, *rest ? arena_printf(out->arena, "%s %s", rest, own) : own);
        mark = " *";
        text = stop + 1;
    }
    while (*rest) rest = put_comment_line(out, margin, mark, rest);
    return text;
}

const char *layout_source(struct arena *arena, const char *text) {
    struct strbuf out = {.arena = arena};
    text = without_zeros(arena, text);
    while (*text) {
        const char *end = text + strcspn(text, "\n"), *first = text + strspn(text, " ");
        if (first[0] == '/' && first[1] == '*') {
            text = put_comment(&out, text);
            continue;
        }
        if (end - text > LAYOUT_COLUMNS && *first != '#')
            put_long_line(&out, text, end);
        else
            strbuf_printf(&out, "%.*s\n", (int)(end - text), text);
        text = end + (*end != 0);
    }
    return strbuf_text(&out);
}
