/* Ids of tokens. */
#ifndef FRONTEND_TEXT_TOKEN_IDS_H
#define FRONTEND_TEXT_TOKEN_IDS_H

#include <stdint.h>

/* A VEC: begin with zeros. */
struct token_ids {
    int32_t *at;
    int n, capacity;
};

#endif
