#include "frontend/import/import_state.h"

int scope_find(const struct scope *scope, const char *name) {
    for (; scope; scope = scope->outer) {
        int value = map_find(&scope->ids, name);
        if (value >= 0) return value - NO_ID_BELOW;
    }
    return UNDEFINED;
}

void scope_define(struct scope *scope, const char *name, int id) {
    map_set(&scope->ids, name, id + NO_ID_BELOW);
}
