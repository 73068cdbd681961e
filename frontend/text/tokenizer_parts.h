/* struct tokenizer, for the files that make and use it. */
#ifndef FRONTEND_TEXT_TOKENIZER_PARTS_H
#define FRONTEND_TEXT_TOKENIZER_PARTS_H

#include "frontend/text/added.h"
#include "frontend/text/process.h"

struct tokenizer {
    const char *path;
    struct parts normalizers, pretokenizers, decoders;
    struct model model;
    struct added added;
    struct frame frame;
    bool has_decoder; /* else tokens are joined by spaces */
};

#endif
