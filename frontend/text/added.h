/* Added tokens: those that a file has beside its model's, or marks among them. They are found in a text before it is
 * split into words. */
#ifndef FRONTEND_TEXT_ADDED_H
#define FRONTEND_TEXT_ADDED_H

#include "frontend/text/model.h"
#include "frontend/text/prefixes.h"

struct added_token {
    struct span content;
    bool single_word, left, right, normalized, special; /* left, right: it takes white space there */
    int32_t id;
    struct span shown; /* what decoders get: the normalized content if it is normalized */
};

struct added {
    struct {
        struct added_token *at;
        int n, capacity;
    } tokens;
    struct map contents;                 /* content to id */
    struct map of_id;                    /* id (int32_t) to index in tokens */
    struct map special;                  /* contents of special tokens */
    struct prefixes literal, normalized; /* those that are looked for in the text, and in the normalized text */
    int count;                           /* of those that the model does not have */
};

/* Reads member "added_tokens". A token gets the id of the model or the next free one, as in the package; if the file
 * says otherwise that is a warning. */
int added_read(struct reader *reader, const struct place *place, const struct rt_json *value, const struct model *model,
               const struct parts *normalizers, struct added *added);

/* NULL: none has the id */
const struct added_token *added_of_id(const struct added *added, int32_t id);

/* Appends the pieces of a text: tokens of the set, and what is between. */
void added_split(const struct added *added, const struct prefixes *set, struct work *work, const struct text *text,
                 struct pieces *pieces);

#endif
