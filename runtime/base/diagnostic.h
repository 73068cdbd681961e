/* Diagnostics as they are printed, by the compiler, the launcher and compiled programs alike.
 *
 *   rankc: error[E0331]: Relu takes 1 input, 3 given
 *     --> model.onnx: node 17 'layer0/act' (Relu)
 *     help: ...
 *
 * or, with --json, an object of one line for each: {"format": 1, "severity": "error", "code": "E0331" or null,
 * "text": "...", "where": "..." or null, "notes": ["help: ..."]}, whatever bytes the texts have (base/json.h). */
#ifndef RT_BASE_DIAGNOSTIC_H
#define RT_BASE_DIAGNOSTIC_H

#include <stdio.h>

enum rt_severity { RT_SEVERITY_ERROR, RT_SEVERITY_WARNING, RT_SEVERITY_NOTE };
enum rt_diagnostic_style { RT_DIAGNOSTIC_PLAIN, RT_DIAGNOSTIC_COLOR, RT_DIAGNOSTIC_JSON };

struct rt_diagnostic {
    enum rt_severity severity;
    int code;                 /* 331 prints as E0331; 0: none */
    const char *text, *where; /* where: NULL if nowhere in particular */
    const char *const *notes; /* complete lines: "note: ..." or "help: ..." */
    int nnotes;
};

void rt_diagnostic_print(const struct rt_diagnostic *item, FILE *out, enum rt_diagnostic_style style);

#endif
