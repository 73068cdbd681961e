#include "frontend/cli/format_bytes.h"

#include <inttypes.h>
#include <stdio.h>

struct bytes_text format_bytes(int64_t bytes) {
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct bytes_text out;
    if (bytes < 1024) {
        snprintf(out.text, sizeof out.text, "%" PRId64 "%s", bytes, bytes ? " B" : "");
        return out;
    }
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value >= 999.5 && unit < 5; unit++) value /= 1024;
    snprintf(out.text, sizeof out.text, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, names[unit]);
    return out;
}
