/* The table of templates that embed.c generates; ends with a row of NULLs. */
#ifndef CODEGEN_EMBEDDED_H
#define CODEGEN_EMBEDDED_H

struct embedded {
    const char *path, *text;
};
extern const struct embedded embedded[];

#endif
