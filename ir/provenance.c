#include "ir/provenance.h"

#include <ctype.h>
#include <string.h>

/* Longest texts, in bytes; bytes that they may have besides letters and digits. A "?" could begin a trigraph, and a
 * backslash continue a comment on the next line. */
enum { SUFFIXES_MOST = 3, SCOPE_MOST = 160, WORD_MOST = 64, LINE_MOST = 120, CODE_MOST = 80, EXPORTER_MOST = 64 };
static const char in_scope[] = "_.-", in_word[] = "_",
                  in_line[] = "_.-+: ", in_exporter[] = "_.-+: ", in_code[] = " _.,:;=+-*/%()[]{}<>&|^~@!'\"#";

static const char *safe(struct arena *arena, const char *text, const char *also, size_t most) {
    if (!text || strlen(text) > most) return "";
    for (const char *c = text; *c; c++)
        if (!((unsigned char)*c < 128 && isalnum((unsigned char)*c)) && !strchr(also, *c)) return "";
    return strstr(text, "*/") || strstr(text, "/*") ? "" : arena_strdup(arena, text);
}

void provenance_add(struct graph *graph, const struct provenance *from) {
    struct arena *arena = graph->arena;
    const size_t length = strlen(from->node);
    const struct provenance kept = {.node = arena_strdup(arena, from->node),
                                    .scope = safe(arena, from->scope, in_scope, SCOPE_MOST),
                                    .word = safe(arena, from->word, in_word, WORD_MOST),
                                    .line = safe(arena, from->line, in_line, LINE_MOST),
                                    .code = safe(arena, from->code, in_code, CODE_MOST)};
    if (!*kept.scope && !*kept.word && !*kept.line) return;
    if (!graph->provenances.n) map_init(&graph->provenance_index, arena);
    if (map_get(&graph->provenance_index, from->node, length) >= 0) return;
    map_put(&graph->provenance_index, from->node, length, graph->provenances.n);
    VEC_PUSH(arena, &graph->provenances, kept);
}

void provenance_exporter(struct graph *graph, const char *name, const char *version, int opset) {
    const char *text = arena_printf(graph->arena, "%s%s%s", name, *name && *version ? " " : "", version);
    graph->exporter = safe(graph->arena, text, in_exporter, EXPORTER_MOST);
    graph->opset = opset;
}

const struct provenance *provenance_of(const struct graph *graph, const char *node, const char **suffix) {
    const char *end = node + strlen(node);
    for (int cut = 0; cut <= SUFFIXES_MOST && graph->provenances.n; cut++) {
        const int at = map_get(&graph->provenance_index, node, (size_t)(end - node));
        if (at >= 0 && suffix) *suffix = end;
        if (at >= 0) return &graph->provenances.at[at];
        while (end > node && *--end != '.') {
        }
        if (end == node) break;
    }
    return NULL;
}

const char *provenance_text(struct arena *arena, const struct graph *graph, const char *node) {
    const struct provenance *from = provenance_of(graph, node, NULL);
    if (!from || (!*from->scope && !*from->line)) return "";
    const char *scope = *from->scope ? arena_printf(arena, " in %s", from->scope) : "";
    return *from->line ? arena_printf(arena, "%s (%s)", scope, from->line) : scope;
}
