#include "frontend/cli/rows/rows_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

bool rows_read_line(struct arena *arena, const char **at, int *line, struct fields *fields) {
    const char *p = *at;
    *fields = (struct fields){0};
    for (bool more = true; more;) {
        struct strbuf field;
        strbuf_init(&field, arena);
        const bool quoted = *p == '"';
        for (p += quoted; *p && (quoted ? !(*p == '"' && p[1] != '"') : *p != ',' && *p != '\n'); p++) {
            if (quoted && *p == '"') p++;
            *line += *p == '\n';
            if (*p != '\r') strbuf_putc(&field, *p);
        }
        if (quoted && *p != '"') return false;
        p += quoted;
        VEC_PUSH(arena, &fields->all, strbuf_text(&field));
        while (*p && *p != ',' && *p != '\n') p++;
        more = *p == ',';
        p += more;
    }
    *line += 1;
    *at = *p ? p + 1 : p;
    return true;
}

bool rows_read_number(const char *text, double *number) {
    static const char suffixes[] = "KMBT";
    char *end;
    while (isspace((unsigned char)*text)) text++;
    *number = 0;
    if (!*text) return true;
    double value = strtod(text, &end);
    if (end == text) return false;
    const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix) value *= pow(1000, (double)(suffix - suffixes + 1)), end++;
    while (isspace((unsigned char)*end)) end++;
    if (*end || !(value >= 0 && value <= 1e15)) return false;
    *number = value;
    return true;
}

const char *rows_lower(struct arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text);
    for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
    return copy;
}

int rows_zero_stage(const char *text) {
    const char *zero = strstr(text, "zero");
    if (!zero) return -1;
    zero += 4;
    zero += strspn(zero, " -_");
    if (strncmp(zero, "stage", 5) == 0) zero += 5;
    zero += strspn(zero, " -_");
    return *zero >= '0' && *zero <= '3' ? *zero - '0' : -1;
}

/* The letters and digits of a device's name, without the vendor, the form of the module, and "gb" behind a size. */
static void bare_name(const char *name, char bare[32]) {
    static const char *const ignored[] = {"nvidia", "tesla", "amd", "instinct", "sxm", "hbm", NULL};
    size_t n = 0;
    while (*name && n < 31) {
        char word[16] = "";
        for (size_t i = 0; i < 15 && name[i]; i++) word[i] = (char)tolower((unsigned char)name[i]);
        size_t skipped = 0;
        for (int i = 0; ignored[i]; i++)
            if (strncmp(word, ignored[i], strlen(ignored[i])) == 0) skipped = strlen(ignored[i]);
        if (skipped && (word[0] == 's' || word[0] == 'h')) skipped += strspn(name + skipped, "0123456789eE");
        if (n > 0 && isdigit((unsigned char)bare[n - 1]) && word[0] == 'g') skipped = word[1] == 'b' ? 2 : 1;
        if (!skipped && isalnum((unsigned char)word[0])) bare[n++] = word[0];
        name += skipped ? skipped : 1;
    }
    bare[n] = 0;
}

bool rows_same_device(const char *known, const char *given) {
    char left[32], right[32];
    bare_name(known, left), bare_name(given, right);
    const size_t length = strlen(right), most = strlen(left);
    if (strcmp(left, right) == 0) return true;
    /* one names the size of the memory, and the other does not */
    const size_t both = length < most ? length : most;
    const char *more = length < most ? left + both : right + both;
    const bool size = strcmp(more, "40") == 0 || strcmp(more, "80") == 0 || strcmp(more, "96") == 0 ||
                      strcmp(more, "16") == 0 || strcmp(more, "32") == 0 || strlen(more) == 3;
    return both >= 4 && strncmp(left, right, both) == 0 && size && strspn(more, "0123456789") == strlen(more);
}
