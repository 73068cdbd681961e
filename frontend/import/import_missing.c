/* Unsupported operators: all of one kind are reported in one error. */
#include "frontend/import/import_state.h"

#include "ir/base/str.h"

enum { MOST_NAMED = 16, MOST_NOTES = 8 }; /* operators named in the error; operators with a note on their place */

static const struct reason {
    int code;
    enum exit_code exit;
    const char *one, *many, *because, *help;
} reasons[] = {
    {403, EXIT_MALFORMED, "unknown operator %s", "unknown operators %s", "ONNX has no such operator", NULL},
    {402, EXIT_UNSUPPORTED, "operator %s is not supported", "operators %s are not supported", "not implemented yet",
     NULL},
    {404, EXIT_UNSUPPORTED, "operator %s uses data types that are not supported",
     "operators %s use data types that are not supported", "its data types are not supported", NULL},
    {405, EXIT_UNSUPPORTED, "control flow is not supported: %s", "control flow is not supported: %s",
     "control flow that depends on data", NULL},
    {410, EXIT_UNSUPPORTED, "the shape of the result depends on data: %s",
     "the shapes of the results depend on data: %s", "the shape of the result depends on data", NULL},
};

enum { OLDEST_WHOLE = 6 }; /* operators that changed before this opset are supported in the form that they have in it */

const char *onnx_refusal(int code) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code) return reasons[i].because;
    BUG("E%04d is no code of an unsupported model", code);
}

void import_missing(struct import *import, const Onnx__NodeProto *node, const struct onnx_op *row, int version,
                    const char *where) {
    const char *domain = onnx_domain(node->domain), *type = onnx_text(node->op_type);
    const char *name = *domain ? arena_printf(import->arena, "%s::%s", domain, type) : type;
    int at = map_get(&import->missing_index, name, strlen(name));
    import->unsupported++;
    if (at >= 0) {
        import->missing.at[at].count++;
        return;
    }
    struct missing missing = {.name = name, .count = 1, .version = version, .where = where};
    if (row && row->since <= version) missing.remedy = row->remedy;
    bool old = row && !*domain && version < OLDEST_WHOLE && row->since <= OLDEST_WHOLE;
    bool newer = row && row->since > version && !old;
    missing.code = newer || (!row && !*domain) ? 403 : row && row->refused ? row->refused : 402;
    missing.since = newer || old ? row->since : 0;
    map_put(&import->missing_index, name, strlen(name), import->missing.n);
    VEC_PUSH(import->arena, &import->missing, missing);
}

static void note_each(struct import *import, int code, int count) {
    int noted = 0;
    for (int i = 0; i < import->missing.n && noted < MOST_NOTES; i++) {
        const struct missing *missing = &import->missing.at[i];
        if (missing->code != code) continue;
        if (missing->since && code == 402)
            diag_help(import->diags,
                      "%s changed in opset %d; convert the model by the onnx package: "
                      "version_converter.convert_version(model, target_version), target_version >= %d",
                      missing->name, missing->since, missing->since);
        else if (missing->since)
            diag_help(import->diags, "%s was added in opset %d, but the model imports opset %d", missing->name,
                      missing->since, missing->version);
        else if (count > 1 || missing->count > 1)
            diag_note(import->diags, "%s: %d node%s, the first is %s", diag_quote(import->diags, missing->name),
                      missing->count, missing->count == 1 ? "" : "s", missing->where);
        if (missing->remedy) diag_help(import->diags, "%s: %s", missing->name, missing->remedy);
        noted++;
    }
}

static void report(struct import *import, const struct reason *reason) {
    struct strbuf names;
    strbuf_init(&names, import->arena);
    const struct missing *first = NULL;
    int count = 0;
    for (int i = 0; i < import->missing.n; i++) {
        const struct missing *missing = &import->missing.at[i];
        if (missing->code != reason->code) continue;
        if (!first) first = missing;
        if (count++ < MOST_NAMED)
            strbuf_printf(&names, "%s%s", count > 1 ? ", " : "",
                          str_escape(import->arena, missing->name, strlen(missing->name), 120));
    }
    if (!first) return;
    if (count > MOST_NAMED) strbuf_printf(&names, " and %d more", count - MOST_NAMED);
    if (reason->code == 403) strbuf_printf(&names, " in opset %d", first->version);
    const char *template = count > 1 ? reason->many : reason->one;
    const char *at = strstr(template, "%s");
    diag_error(import->diags, reason->code, reason->exit, first->where, "%.*s%s%s", (int)(at - template), template,
               strbuf_text(&names), at + 2);
    note_each(import, reason->code, count);
    if (reason->help) diag_help(import->diags, "%s", reason->help);
    if (reason->code == 402 && strstr(first->name, "::") && strncmp(first->name, "com.microsoft::", 15) != 0)
        diag_help(import->diags, "--ops FILE declares operators of your own");
}

void import_report_missing(struct import *import) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) report(import, &reasons[i]);
}
