#include "frontend/options/options.h"

#include <string.h>

#include "ir/base/str.h"

#define IN(ID)    (1u << VERB_##ID)
#define ALL_VERBS ((1u << VERBS) - 1)

const struct verb_row verb_rows[VERBS] = {
#define VERB(ID, NAME, OPERAND, HELP, ...) {#NAME, OPERAND, HELP, __VA_ARGS__},
#include "frontend/options/options.def"
};

const struct action_row action_rows[ACTIONS] = {
    {0},
#define ACTION(VERB, ID, NAME, OPERANDS, HELP) {VERB_##VERB, NAME, OPERANDS, HELP},
#include "frontend/options/options.def"
};

const char *action_names(enum verb verb, const char *between, struct arena *arena) {
    struct strbuf names = {.arena = arena};
    for (int i = 1; i < ACTIONS; i++)
        if (action_rows[i].verb == verb)
            strbuf_printf(&names, "%s%s", names.length ? between : "", action_rows[i].name);
    return strbuf_text(&names);
}

const struct choice_row choice_rows[CHOICES] = {
    {GROUP_NONE, "", "", "", false},
#define CHOICE(GROUP, ID, WORD, KEYS, HELP)       {GROUP_##GROUP, WORD, KEYS, HELP, false},
#define CHOICE_LATER(GROUP, ID, WORD, KEYS, HELP) {GROUP_##GROUP, WORD, KEYS, HELP, true},
#include "frontend/options/options.def"
};

const struct option option_rows[OPTIONS] = {
#define OPTION(ID, FIELD, NAME, KIND, METAVAR, VERBS, KEY, HELP, ...)                                                  \
    {.name = NAME,                                                                                                     \
     .kind = OPTION_##KIND,                                                                                            \
     .metavar = METAVAR,                                                                                               \
     .verbs = VERBS,                                                                                                   \
     .key = KEY,                                                                                                       \
     .help = HELP,                                                                                                     \
     .offset = offsetof(struct options, FIELD),                                                                        \
     __VA_ARGS__},
#include "frontend/options/options.def"
};

const enum option_id option_order[] = {
#define SECTION(TITLE, ...) __VA_ARGS__,
#include "frontend/options/options.def"
};

const struct section option_sections[] = {
#define SECTION(TITLE, ...) {TITLE, (int)(sizeof((enum option_id[]){__VA_ARGS__}) / sizeof(enum option_id))},
#include "frontend/options/options.def"
    {NULL, 0},
};

const enum verb verb_order[] = {
#define VERB_SECTION(TITLE, ...) __VA_ARGS__,
#include "frontend/options/options.def"
};

const struct section verb_sections[] = {
#define VERB_SECTION(TITLE, ...) {TITLE, (int)(sizeof((enum verb[]){__VA_ARGS__}) / sizeof(enum verb))},
#include "frontend/options/options.def"
    {NULL, 0},
};

/* Every field has the type of its row's kind. */
#define OPTION_FLAG_TYPE   bool
#define OPTION_TEXT_TYPE   const char *
#define OPTION_PATH_TYPE   const char *
#define OPTION_RATE_TYPE   const char *
#define OPTION_WINDOW_TYPE const char *
#define OPTION_COUNT_TYPE  int64_t
#define OPTION_BYTES_TYPE  int64_t
#define OPTION_CHOICE_TYPE enum choice
#define OPTION_POLICY_TYPE struct option_policy
#define OPTION_SIZES_TYPE  struct option_sizes
#define OPTION_SHAPES_TYPE struct option_shapes
#define OPTION_FILES_TYPE  struct option_files
#define OPTION_TEXTS_TYPE  struct option_texts
#define OPTION(ID, FIELD, NAME, KIND, ...)                                                                             \
    _Static_assert(_Generic(((struct options *)0)->FIELD, OPTION_##KIND##_TYPE : 1, default : 0), "field of --" NAME);
#include "frontend/options/options.def"
