#include "frontend/cli/rows/rows_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* True if the text says that there is no number. */
static bool says_nothing(const char *text) {
    static const char *const words[] = {"",     "-",    "?",       "n/a",     "na",      "none",
                                        "null", "auto", "default", "unknown", "unstated"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    return false;
}

/* The text without spaces at its ends, the commas of thousands, and a sign that it is about that many, for strtod;
 * false: it is too long for a number. */
static bool bare_number(const char *text, char bare[40]) {
    size_t n = 0;
    while (isspace((unsigned char)*text) || *text == '~') text++;
    for (; *text && n < 39; text++) {
        const bool thousands = *text == ',' && n > 0 && strspn(text + 1, "0123456789") == 3;
        if (!thousands) bare[n++] = *text;
    }
    while (n > 0 && isspace((unsigned char)bare[n - 1])) n--;
    bare[n] = 0;
    return !*text;
}

bool rows_read_number(const char *text, double *number) {
    static const char suffixes[] = "KMBT";
    char bare[40], *end;
    if (!bare_number(text, bare)) return false;
    *number = 0;
    if (says_nothing(bare)) return true;
    double value = strtod(bare, &end);
    if (end == bare) return false;
    const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix) value *= pow(1000, (double)(suffix - suffixes + 1)), end++;
    if (*end || !(value >= 0 && value <= 1e15)) return false;
    *number = value;
    return true;
}

const char *rows_trim(struct arena *arena, const char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *copy = arena_strdup(arena, text);
    size_t n = strlen(copy);
    while (n > 0 && isspace((unsigned char)copy[n - 1])) copy[--n] = 0;
    return copy;
}

const char *rows_lower(struct arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text);
    for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
    return copy;
}

bool rows_names_one(const char *text, const char *words) {
    for (size_t length;; words += length + 1) {
        length = strcspn(words, "|");
        for (const char *at = text; *at || !length; at++)
            if (strncmp(at, words, length) == 0) return true;
        if (!words[length]) return false;
    }
}

/* True if the text begins with the word, not counting the separators in the text. */
static bool begins(const char *text, const char *word) {
    for (; *word; text++) {
        if (*text == *word)
            word++;
        else if (!*text || !strchr(" -_", *text))
            return false;
    }
    return true;
}

bool rows_mentions(const char *text, const char *word) {
    for (; *text; text++)
        if (begins(text, word)) return true;
    return false;
}

const char *rows_spell_precision(struct arena *arena, const char *text) {
    static const char *const spellings[][2] = {
        {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}, {"tf32", "fp32"},
        {"float8", "fp8"},    {"e4m3", "fp8"},     {"float4", "fp4"},
    };
    struct strbuf spelled;
    strbuf_init(&spelled, arena);
    while (*text) {
        size_t i = 0, count = sizeof spellings / sizeof *spellings;
        while (i < count && strncmp(text, spellings[i][0], strlen(spellings[i][0])) != 0) i++;
        if (i < count)
            strbuf_puts(&spelled, spellings[i][1]), text += strlen(spellings[i][0]);
        else
            strbuf_putc(&spelled, *text++);
    }
    return strbuf_text(&spelled);
}

int rows_zero_stage(const char *text) {
    const char *zero = strstr(text, "zero");
    if (!zero) return -1;
    zero += 4;
    zero += strspn(zero, " -_:=(");
    if (strncmp(zero, "stage", 5) == 0) zero += 5;
    zero += strspn(zero, " -_:=");
    return *zero >= '0' && *zero <= '3' ? *zero - '0' : -1;
}

/* Gigabits that the number at the begin of a text and its unit state, 0: none; *end is behind the number. A single 100,
 * 200 or 400 does not count: it may be one adapter of several. */
static double adapters(const char *text, char **end) {
    static const struct {
        const char *word;
        double gigabits;
    } kinds[] = {{"xEDR", 100}, {"xHDR", 200}, {"xNDR", 400}};
    double gigabits = strtod(text, end);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(*end, kinds[i].word, 4) == 0) return gigabits * kinds[i].gigabits;
    const bool several = **end == 'x' && isdigit((unsigned char)(*end)[1]);
    if (several) gigabits *= strtod(*end + 1, end);
    const char *unit = *end + strspn(*end, " ");
    if (strncmp(unit, "Tb", 2) == 0) return 1000 * gigabits;
    if (several && *unit == 'G' && !isalnum((unsigned char)unit[1])) return gigabits;
    if (strncmp(unit, "Gb", 2) != 0) return 0;
    return !several && (gigabits == 100 || gigabits == 200 || gigabits == 400) ? 0 : gigabits;
}

double rows_node_network(const char *text) {
    static const char digits[] = "0123456789";
    char *end;
    for (const char *at = text + strcspn(text, digits); *at; at = end + strcspn(end, digits)) {
        const double gigabits = adapters(at, &end);
        if (gigabits >= 1 && gigabits <= 1e5) return gigabits;
    }
    return 0;
}

/* The letters and digits of a device's name, without the vendor, the form of the module, and "gb" behind a size. */
static void bare_name(const char *name, char bare[32]) {
    static const char *const ignored[] = {"nvidia", "tesla", "amd", "instinct", "dgx", "hgx",
                                          "nvlink", "nvl72", "sxm", "hbm",      NULL};
    size_t n = 0, count = strspn(name, "0123456789");
    if (count > 0 && tolower((unsigned char)name[count]) == 'x') name += count + 1; /* 8x H100 */
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
