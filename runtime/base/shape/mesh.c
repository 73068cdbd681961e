#include "mesh.h"

#include <stdlib.h>
#include <string.h>

/* A number of at most five digits, to the first character behind it. */
static bool parse_stage(const char **text, int *stage) {
    const size_t digits = strspn(*text, "0123456789");
    *stage = (int)strtol(*text, NULL, 10);
    *text += digits;
    return digits > 0 && digits <= 5;
}

bool rt_mesh_parse_stages(const char *text, int *first, int *end) {
    *first = *end = 0;
    if (!*text) return true;
    if (*text++ != '@' || !parse_stage(&text, first)) return false;
    *end = *first;
    if (*text == '-' && (text++, !parse_stage(&text, end))) return false;
    return !*text && (*end)++ >= *first;
}

const char *rt_mesh_refused(const struct rt_mesh *mesh) {
    const int pipeline = mesh->stages;
    bool even = true;
    for (int a = 0; a < mesh->naxes; a++) even = even && !mesh->axis[a].end;
    if (even) return NULL;
    if (pipeline < 0) return "an axis names pipeline stages, but the mesh has no axis pipeline";
    if (pipeline != mesh->naxes - 1) return "where an axis names pipeline stages, axis pipeline is the last one";
    if (mesh->axis[pipeline].end) return "axis pipeline belongs to all stages";
    for (int a = 0; a < pipeline; a++) {
        if (!mesh->axis[a].end) continue;
        if (mesh->axis[a].first < 0 || mesh->axis[a].first >= mesh->axis[a].end) return "an axis belongs to no stage";
        if (mesh->axis[a].end > mesh->axis[pipeline].size) return "an axis names a pipeline stage that there is not";
    }
    return NULL;
}
