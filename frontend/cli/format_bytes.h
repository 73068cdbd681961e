/* Formatting of numbers for people. */
#ifndef FRONTEND_CLI_FORMAT_BYTES_H
#define FRONTEND_CLI_FORMAT_BYTES_H

#include <stdint.h>

struct bytes_text {
    char text[32];
};

/* A number of bytes as "0", "812 B" or "1.25 MiB": exact below 1 KiB, else three significant digits. */
struct bytes_text format_bytes(int64_t bytes);

#endif
