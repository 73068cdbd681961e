/* Post-processors: the special tokens around the ids of a text. */
#ifndef FRONTEND_TEXT_PROCESS_H
#define FRONTEND_TEXT_PROCESS_H

#include "frontend/text/model.h"

/* Items in order; empty: the ids alone. */
struct frame {
    struct frame_item {
        bool text;  /* the ids of the text */
        int32_t id; /* else a special token */
    } * at;
    int n, capacity;
};

/* Reads member "post_processor". */
int frame_read(struct reader *reader, const struct place *place, const struct rt_json *value, struct frame *frame);

/* Appends the ids in their frame, without special tokens unless `special`. */
void frame_put(const struct frame *frame, struct arena *arena, const struct token_ids *text, bool special,
               struct token_ids *ids);

#endif
