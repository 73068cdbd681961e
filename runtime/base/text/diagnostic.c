#include "diagnostic.h"

#include "json.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *color;
} severities[] = {[RT_SEVERITY_ERROR] = {"error", "\033[1;31m"},
                  [RT_SEVERITY_WARNING] = {"warning", "\033[1;33m"},
                  [RT_SEVERITY_NOTE] = {"note", "\033[1;36m"}};

static void print_text(const struct rt_diagnostic *item, FILE *out, bool color) {
    fprintf(out, "rankc: %s%s", color ? severities[item->severity].color : "", severities[item->severity].name);
    if (item->code) fprintf(out, "[E%04d]", item->code);
    fprintf(out, "%s: %s\n", color ? "\033[0m" : "", item->text);
    if (item->where) fprintf(out, "  --> %s\n", item->where);
    for (int i = 0; i < item->nnotes; i++) fprintf(out, "  %s\n", item->notes[i]);
}

static void print_json(const struct rt_diagnostic *item, FILE *out) {
    static const char last_resort[] = "{\"format\": 1, \"severity\": \"error\", \"code\": \"E0500\", \"text\": "
                                      "\"out of memory\", \"where\": null, \"notes\": []}\n";
    struct rt_json_writer w;
    char code[16];
    snprintf(code, sizeof code, "E%04d", item->code);
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_INLINE);
    rt_json_key_int(&w, "format", 1);
    rt_json_key_text(&w, "severity", severities[item->severity].name);
    rt_json_key_text(&w, "code", item->code ? code : NULL);
    rt_json_key_text(&w, "text", item->text);
    rt_json_key_text(&w, "where", item->where);
    rt_json_key_open(&w, "notes", '[', RT_JSON_INLINE);
    for (int i = 0; i < item->nnotes; i++) rt_json_put_text(&w, item->notes[i]);
    rt_json_close(&w, ']');
    rt_json_close(&w, '}');
    if (!rt_json_end_to(&w, out)) fputs(last_resort, out);
}

static void print(const struct rt_diagnostic *item, FILE *out, enum rt_diagnostic_style style) {
    if (style == RT_DIAGNOSTIC_JSON)
        print_json(item, out);
    else
        print_text(item, out, style == RT_DIAGNOSTIC_COLOR);
}

/* Writes all lines at once, so that they do not mix with those of other processes; where memory is exhausted, piece by
 * piece. */
void rt_diagnostic_print(const struct rt_diagnostic *item, FILE *out, enum rt_diagnostic_style style) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory) print(item, memory, style);
    if (memory && fclose(memory) == 0)
        fwrite(text, 1, bytes, out);
    else
        print(item, out, style);
    free(text);
}

/* Levenshtein distance of two words of at most 63 characters; longer words have the largest distance. */
static int distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    int row[64];
    if (na > 63 || nb > 63) return 64;
    for (size_t j = 0; j <= nb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *rt_nearest(const char *word, const char *const *names, int count) {
    const char *nearest = NULL;
    int least = (int)strlen(word) / 3 + 1;
    for (int i = 0; i < count; i++) {
        const int d = distance(word, names[i]);
        if (d <= least && (!nearest || d < least)) nearest = names[i], least = d;
    }
    return nearest;
}
