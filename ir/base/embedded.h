/* Files that are built in, so that rankc needs no data files: embed.c writes tables of them. */
#ifndef IR_BASE_EMBEDDED_H
#define IR_BASE_EMBEDDED_H

/* Each table ends with a row of NULLs. */
struct embedded {
    const char *path, *text;
};

#endif
