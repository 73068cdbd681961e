/* Ranges of sizes as texts. */
#include <string.h>

#include "ir/open.h"
#include "runtime/base/number/checked.h"

const char *open_range_text(struct arena *arena, const struct open_range *range) {
    if (!open_is_range(range)) return arena_printf(arena, "%lld", (long long)range->most);
    const char *step = range->step == 1 ? "" : arena_printf(arena, ":%lld", (long long)range->step);
    const char *typical = range->typical == range->most ? "" : arena_printf(arena, "@%lld", (long long)range->typical);
    return arena_printf(arena, "%lld..%lld%s%s", (long long)range->least, (long long)range->most, step, typical);
}

static bool parse_digits(const char **text, int64_t *number) {
    if (**text < '0' || **text > '9') return false;
    for (*number = 0; **text >= '0' && **text <= '9'; ++*text)
        if (!rt_mul(*number, 10, number) || !rt_add(*number, **text - '0', number)) return false;
    return true;
}

bool open_range_parse(const char *text, struct open_range *range, const char **rest) {
    if (!parse_digits(&text, &range->least)) return false;
    *range = open_fixed(range->least);
    *rest = text;
    if (strncmp(text, "..", 2) != 0) return true;
    text += 2;
    if (!parse_digits(&text, &range->most) || range->most < range->least) return false;
    if (*text == ':' && (text++, !parse_digits(&text, &range->step) || !range->step)) return false;
    range->typical = range->most;
    if (*text == '@' && (text++, !parse_digits(&text, &range->typical))) return false;
    *rest = text;
    return range->typical >= range->least && range->typical <= range->most &&
           (range->most - range->least) % range->step == 0 && (range->typical - range->least) % range->step == 0;
}

int64_t open_range_unit(const struct open_range *size) {
    int64_t unit = size->step;
    for (int64_t rest = size->least; rest;) {
        const int64_t next = unit % rest;
        unit = rest, rest = next;
    }
    return unit;
}
