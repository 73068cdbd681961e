/* The tables of files that embed.c generates; each ends with a row of NULLs. */
#ifndef CODEGEN_EMBEDDED_H
#define CODEGEN_EMBEDDED_H

struct embedded {
    const char *path, *text;
};
extern const struct embedded embedded[];         /* templates/ */
extern const struct embedded embedded_runtime[]; /* runtime/, and xxhash.h */

#endif
