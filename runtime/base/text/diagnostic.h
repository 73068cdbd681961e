/* How diagnostics are printed, by compiler, launcher and compiled programs alike:
 *
 *   rankc: error[E0331]: Relu takes 1 input, 3 given
 *     --> model.onnx: node 17 'layer0/act' (Relu)
 *     help: ...
 *
 * With --json each is a JSON object on one line: {"format": 1, "severity": "error", "code": "E0331" or null, "text":
 * "...", "where": "..." or null, "notes": ["help: ..."]}. Bytes that are not UTF-8 are escaped as base/text/json.h
 * says. */
#ifndef RT_BASE_DIAGNOSTIC_H
#define RT_BASE_DIAGNOSTIC_H

#include <stdio.h>

enum rt_severity { RT_SEVERITY_ERROR, RT_SEVERITY_WARNING, RT_SEVERITY_NOTE };
enum rt_diagnostic_style { RT_DIAGNOSTIC_PLAIN, RT_DIAGNOSTIC_COLOR, RT_DIAGNOSTIC_JSON };

struct rt_diagnostic {
    enum rt_severity severity;
    int code;                 /* 331 prints as E0331; 0: none */
    const char *text, *where; /* where: node, file or option; NULL: none */
    const char *const *notes; /* complete lines: "note: ..." or "help: ..." */
    int nnotes;
};

/* The name nearest to `word` in edit distance, NULL if all differ too much to suggest one: for "did you mean". */
const char *rt_nearest(const char *word, const char *const *names, int count);

void rt_diagnostic_print(const struct rt_diagnostic *item, FILE *out, enum rt_diagnostic_style style);

#endif
