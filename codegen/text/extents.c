#include "codegen/text/extents.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/text/names.h"
#include "ir/base/str.h"

enum {
    FIXED_MARK = 5,
    FUNCTION_MARK = 6,    /* the first byte of a line, of which the rest is how to reach the extents */
    PARAMETERS_MARK = 14, /* around the type of extents that are parameters */
    ARGUMENTS_MARK = 15
};

/* An entry of struct PREFIX_extents. */
struct extent {
    int64_t value;
    const char *name, *is; /* `is`: its expression */
    bool used;             /* in the function that is being spelled */
};

/* A size that sources have a name for and the extents have not: fixed, or made of extents. */
struct other {
    const char *name, *is; /* `is`: as it is written, the name of no extent */
};

struct extents {
    const struct graph *graph;
    const struct sizes *sizes;
    struct arena *arena;
    struct open_sizes *open;
    const char *prefix; /* of the program's functions */
    struct names taken;
    VEC(struct extent) all;
    VEC(struct other) others;
    VEC(const char *) words; /* by size: an identifier of its own */
    bool comments;           /* what is being spelled is a comment, which needs no variables */
};

static int find(const struct extents *extents, int64_t value) {
    for (int i = 0; i < extents->all.n; i++)
        if (extents->all.at[i].value == value) return i;
    return -1;
}

static const char *in_case(struct arena *arena, const char *name, int (*change)(int)) {
    char *text = arena_strdup(arena, name);
    for (char *c = text; *c; c++) *c = (char)change((unsigned char)*c);
    return text;
}

/* The words, or something like them that is no name yet. */
static const char *take(struct extents *extents, const char *words) {
    const char *name = names_take(&extents->taken, in_case(extents->arena, words, tolower), "extent");
    return in_case(extents->arena, name, toupper);
}

static const char *other_name(struct extents *extents, const char *name) {
    for (int i = 0; i < extents->others.n; i++)
        if (strcmp(extents->others.at[i].name, name) == 0) return extents->others.at[i].is;
    VEC_PUSH(extents->arena, &extents->others, ((struct other){name, take(extents, name)}));
    return extents->others.at[extents->others.n - 1].is;
}

/* A name for the entry: the size's letter if it has one in the model, else the dimension's own name. A value that is
 * computed from sizes has the name of the first of them, and a number. */
static const char *name_for(struct extents *extents, int64_t value) {
    const int size = open_first_size(extents->open, value);
    const char *name = sizes_letter(extents->sizes, value);
    if (!name) name = sizes_letter(extents->sizes, extents->open->all.at[size].value);
    if (!name) name = extents->open->all.at[size].name;
    return take(extents, names_words(extents->arena, name, name));
}

static const char *member_of_term(const void *context, int term);

/* The entry of the value. A new entry is added after those that its expression reads. */
static int entry_of(struct extents *extents, int64_t value) {
    const struct open_names names = {member_of_term, extents};
    const int at = find(extents, value);
    if (at >= 0) return at;
    const char *is = open_meaning(extents->open, extents->arena, value, &names);
    VEC_PUSH(extents->arena, &extents->all, ((struct extent){value, name_for(extents, value), is, false}));
    return extents->all.n - 1;
}

/* The same for the function that is being spelled. */
static int use(struct extents *extents, int64_t value) {
    const int at = entry_of(extents, value);
    if (!extents->comments) extents->all.at[at].used = true;
    return at;
}

static const char *name_of_term(const void *context, int term) {
    struct extents *extents = (struct extents *)context;
    if (!open_is_atom(extents->open, term)) return NULL;
    const int at = use(extents, extents->open->terms.at[term].value); /* may move all.at */
    return extents->all.at[at].name;
}

/* Where the struct is filled. */
static const char *member_of_term(const void *context, int term) {
    struct extents *extents = (struct extents *)context;
    if (!open_is_atom(extents->open, term)) return NULL;
    const int at = entry_of(extents, extents->open->terms.at[term].value);
    return arena_printf(extents->arena, "size->%s", extents->all.at[at].name);
}

struct extents *extents_new(const struct graph *graph, const struct sizes *sizes, const char *prefix) {
    if (!graph->open) return NULL;
    struct extents *extents = ARENA_NEW(graph->arena, struct extents);
    *extents =
        (struct extents){.graph = graph, .sizes = sizes, .arena = graph->arena, .open = graph->open, .prefix = prefix};
    names_begin(&extents->taken, graph->arena);
    struct names members;
    names_begin(&members, graph->arena);
    for (int i = 0; i < graph->open->all.n; i++) {
        const char *name = graph->open->all.at[i].name;
        const char *word = names_take(&members, names_words(graph->arena, name, name), "size");
        VEC_PUSH(graph->arena, &extents->words, word);
        use(extents, graph->open->all.at[i].value);
    }
    for (int i = 0; i < graph->open->all.n; i++)
        if (graph->open->all.at[i].next) entry_of(extents, graph->open->all.at[i].next);
    for (int i = 0; i < graph->open->limits.n; i++) entry_of(extents, graph->open->limits.at[i].value);
    return extents;
}

const char *extents_entry(struct extents *extents, struct arena *arena, int64_t value) {
    if (!extents || !open_is(extents->open, value)) return arena_printf(arena, "%lld", (long long)value);
    return arena_printf(arena, "RT_EXTENT(%d)", use(extents, value));
}

/* Sizes are called by the words of their names. */
static const char *word_of_term(const void *context, int term) {
    const struct extents *extents = context;
    const struct open_term *t = &extents->open->terms.at[term];
    return t->kind == OPEN_SIZE ? extents->words.at[t->a] : NULL;
}

const char *extents_said(struct extents *extents, struct arena *arena, int64_t value) {
    if (!extents) return arena_printf(arena, "%lld", (long long)value);
    return open_text(extents->open, arena, value, &(struct open_names){word_of_term, extents}, false);
}

const char *extents_mark(struct arena *arena, const char *access) {
    return arena_printf(arena, "%c%s", FUNCTION_MARK, access);
}

const char *extents_parameters(struct arena *arena, const char *type) {
    return arena_printf(arena, "%c%s%c", PARAMETERS_MARK, type, PARAMETERS_MARK);
}

const char *extents_arguments(struct arena *arena) {
    return arena_printf(arena, "%c", ARGUMENTS_MARK);
}

const char *extents_fixed(const struct graph *graph, int64_t value) {
    const char *digits = arena_printf(graph->arena, "%lld", (long long)value);
    return graph->open ? arena_printf(graph->arena, "%c%s", FIXED_MARK, digits) : digits;
}

/* The name of a size that a source uses. */
struct alias {
    const char *name, *is; /* `is`: as it is written */
    enum { ALIAS_EXTENT, ALIAS_MADE /* declared with its expression */, ALIAS_FIXED } kind;
    bool used;
};

struct speller {
    struct extents *extents;
    struct open_names names;
    VEC(struct alias) aliases;
    struct strbuf out;  /* up to the function */
    struct strbuf body; /* of the function, from its mark on */
    const char *access; /* NULL: outside of a function, or in one that has `type` */
    const char *type;   /* of extents that are the function's parameters; else NULL */
    VEC(int) passed;    /* the extents of the last function that has them as parameters */
};

static void find_aliases(struct speller *speller, const struct size_names *names) {
    struct extents *extents = speller->extents;
    VEC_EACH(&names->all, i, const struct size_name *size) {
        struct alias alias = {.name = size->name, .kind = ALIAS_FIXED};
        if (open_is(extents->open, size->value))
            alias.kind = open_names_alone(extents->open, size->value) ? ALIAS_EXTENT : ALIAS_MADE;
        const int at = alias.kind == ALIAS_EXTENT ? use(extents, size->value) : -1;
        alias.is = at < 0 ? other_name(extents, size->name) : extents->all.at[at].name;
        VEC_PUSH(extents->arena, &speller->aliases, alias);
    }
}

static struct alias *alias_of(struct speller *speller, const char *name, size_t length) {
    VEC_EACH(&speller->aliases, i, struct alias *const alias)
        if (strlen(alias->name) == length && memcmp(alias->name, name, length) == 0) return alias;
    return NULL;
}

static int64_t value_of_alias(const struct size_names *names, const char *name) {
    for (int i = 0; i < names->all.n; i++)
        if (strcmp(names->all.at[i].name, name) == 0) return names->all.at[i].value;
    return 0;
}

/* True if the extent changes from step to step. */
static bool grows(const struct extents *extents, int at) {
    for (int s = 0; s < extents->open->all.n; s++)
        if (extents->open->all.at[s].next && open_reads(extents->open, extents->all.at[at].value, s)) return true;
    return false;
}

bool extents_grow(const struct extents *extents) {
    for (int i = 0; extents && i < extents->all.n; i++)
        if (grows(extents, i)) return true;
    return false;
}

/* Writes the extents that the function uses as its parameters. */
static void put_parameters(struct speller *speller) {
    struct extents *extents = speller->extents;
    speller->passed.n = 0;
    for (int i = 0; i < extents->all.n; i++) {
        if (!extents->all.at[i].used) continue;
        strbuf_printf(&speller->out, grows(extents, i) ? ", rt_grown<%s> %s" : ", %s %s", speller->type,
                      extents->all.at[i].name);
        VEC_PUSH(extents->arena, &speller->passed, i);
    }
}

/* Writes them as arguments. */
static void put_arguments(struct speller *speller) {
    for (int i = 0; i < speller->passed.n; i++) {
        struct extent *extent = &speller->extents->all.at[speller->passed.at[i]];
        if (grows(speller->extents, speller->passed.at[i])) {
            strbuf_printf(&speller->body, ", rt_extent_at(rt, %d)", speller->passed.at[i]);
            continue;
        }
        strbuf_printf(&speller->body, ", %s", extent->name);
        extent->used = true;
    }
}

/* Declares the names that the function uses, and writes it. */
static void end_function(struct speller *speller, const struct size_names *names) {
    struct extents *extents = speller->extents;
    struct strbuf declared = {.arena = extents->arena};
    if (speller->type) put_parameters(speller);
    if (!speller->access) {
        strbuf_puts(&speller->out, strbuf_text(&speller->body));
    } else {
        for (int i = 0; i < speller->aliases.n; i++) { /* expressions first: they use extents */
            struct alias *alias = &speller->aliases.at[i];
            if (!alias->used || alias->kind != ALIAS_MADE) continue;
            const int64_t value = value_of_alias(names, alias->name);
            const char *is = open_text(extents->open, extents->arena, value, &speller->names, false);
            strbuf_printf(&declared, ", %s = %s", alias->is, is);
            alias->used = false;
        }
        const char *behind = strbuf_text(&declared);
        const char *before = "";
        for (int i = 0; i < extents->all.n; i++) {
            if (!extents->all.at[i].used) continue;
            before = arena_printf(extents->arena, "%s%s%s = size->%s", before, *before ? ", " : "",
                                  extents->all.at[i].name, extents->all.at[i].name);
        }
        if (*before) {
            strbuf_printf(&speller->out, "    const struct %s_extents *const size = (const struct %s_extents *)%s;\n",
                          extents->prefix, extents->prefix, speller->access);
            strbuf_printf(&speller->out, "    const int64_t %s%s;\n", before, behind);
        } else {
            strbuf_printf(&speller->out, "    (void)%s;\n", speller->access);
        }
        strbuf_puts(&speller->out, strbuf_text(&speller->body));
    }
    for (int i = 0; i < extents->all.n; i++) extents->all.at[i].used = false;
    strbuf_init(&speller->body, extents->arena);
    speller->access = speller->type = NULL;
}

/* True if an expression in place of the number at `text` needs no parentheses. */
static bool stands_alone(const struct strbuf *before, const char *behind) {
    size_t n = before->length;
    while (n && before->text[n - 1] == ' ') n--;
    while (*behind == ' ') behind++;
    const char last = n ? before->text[n - 1] : 0;
    return strchr("(,{=<;[", last) && strchr("),};]\n", *behind);
}

/* True if a minus that follows is a sign. */
static bool signs(const struct strbuf *before) {
    size_t n = before->length;
    while (n && before->text[n - 1] == ' ') n--;
    return n && strchr("(,{=[", before->text[n - 1]);
}

/* True in a comment behind a part of a node's name: layer.4/conv. */
static bool continues_name(const struct speller *speller) {
    const size_t n = speller->body.length;
    return speller->extents->comments && n && strchr("./:", speller->body.text[n - 1]);
}

/* Writes the number that begins at `text`; returns what follows it. */
static const char *spell_number(struct speller *speller, const char *text) {
    char *end;
    const int64_t value = strtoll(text, &end, 10);
    const bool whole = !isalnum((unsigned char)*end) && *end != '.' && *end != '_' && !continues_name(speller);
    if (whole && open_is(speller->extents->open, value)) {
        const bool alone = stands_alone(&speller->body, end);
        strbuf_puts(&speller->body,
                    open_text(speller->extents->open, speller->extents->arena, value, &speller->names, !alone));
        return end;
    }
    while (isalnum((unsigned char)*end) || *end == '.' || *end == '_') end++;
    strbuf_add(&speller->body, text, (size_t)(end - text));
    return end;
}

static const char *spell_word(struct speller *speller, const char *text) {
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    struct alias *alias = alias_of(speller, text, length);
    if (length == 7 && memcmp(text, "INT64_C", length) == 0 && text[length] == '(' &&
        open_is(speller->extents->open, strtoll(text + length + 1, NULL, 10)))
        return text + length; /* expressions are of that type */
    if (!alias) {
        strbuf_add(&speller->body, text, length);
    } else {
        alias->used = alias->used || !speller->extents->comments;
        strbuf_puts(&speller->body, alias->is);
        if (alias->kind == ALIAS_EXTENT && !speller->extents->comments)
            for (int i = 0; i < speller->extents->all.n; i++)
                if (strcmp(speller->extents->all.at[i].name, alias->is) == 0) speller->extents->all.at[i].used = true;
    }
    return text + length;
}

static const char *copy_string(struct speller *speller, const char *text) {
    size_t length = 1;
    while (text[length] && text[length] != *text) length += 1 + (text[length] == '\\' && text[length + 1]);
    strbuf_add(&speller->body, text, length + !!text[length]);
    return text + length + !!text[length];
}

const char *extents_spell(struct extents *extents, const struct size_names *names, const char *text) {
    struct speller speller = {.extents = extents, .names = {name_of_term, extents}};
    strbuf_init(&speller.out, extents->arena);
    strbuf_init(&speller.body, extents->arena);
    find_aliases(&speller, names);
    for (int i = 0; i < extents->all.n; i++) extents->all.at[i].used = false;
    for (char comment = 0; *text;) { /* comment: the second byte of what began it */
        const bool starts = !speller.body.length || speller.body.text[speller.body.length - 1] == '\n';
        if (!comment && text[0] == '/' && (text[1] == '/' || text[1] == '*')) comment = text[1];
        if (comment == '/' ? *text == '\n' : text[0] == '*' && text[1] == '/') comment = 0;
        extents->comments = comment != 0;
        const char *mark = text + strspn(text, " ");
        if (starts && *mark == FUNCTION_MARK) {
            const size_t length = strcspn(mark, "\n");
            end_function(&speller, names);
            speller.access = arena_copy(extents->arena, mark + 1, length - 1);
            text = mark + length + 1;
        } else if (*text == PARAMETERS_MARK) {
            end_function(&speller, names);
            const size_t length = strcspn(text + 1, (char[]){PARAMETERS_MARK, 0});
            speller.type = arena_copy(extents->arena, text + 1, length);
            text += length + 2;
        } else if (*text == ARGUMENTS_MARK) {
            put_arguments(&speller);
            text++;
        } else if (starts && (speller.access || speller.type) && text[0] == '}' && text[1] == '\n') {
            strbuf_puts(&speller.body, "}\n");
            end_function(&speller, names);
            text += 2;
        } else if (*text == FIXED_MARK) {
            for (text++; isdigit((unsigned char)*text); text++) strbuf_putc(&speller.body, *text);
        } else if (isdigit((unsigned char)*text) ||
                   (*text == '-' && isdigit((unsigned char)text[1]) && signs(&speller.body))) {
            text = spell_number(&speller, text);
        } else if (isalpha((unsigned char)*text) || *text == '_') {
            text = spell_word(&speller, text);
        } else if (!comment && (*text == '"' || *text == '\'')) {
            text = copy_string(&speller, text);
        } else {
            strbuf_putc(&speller.body, *text++);
        }
    }
    end_function(&speller, names);
    return strbuf_text(&speller.out);
}

/* "1 to 512", as messages of the runtime say it. */
static const char *range_said(struct arena *arena, const struct open_range *range) {
    const char *step = range->step == 1 ? "" : arena_printf(arena, " in steps of %lld", (long long)range->step);
    return arena_printf(arena, "%lld to %lld%s", (long long)range->least, (long long)range->most, step);
}

static void bind_limits(const struct extents *extents, struct tmpl_env *env) {
    VEC_EACH(&extents->open->limits, i, const struct open_limit *limit) {
        struct tmpl_env *entry = tmpl_entry(env, "limits");
        tmpl_set(
            entry, "said",
            open_text(extents->open, extents->arena, limit->value, &(struct open_names){word_of_term, extents}, false));
        tmpl_setf(entry, "extent", "%d", find(extents, limit->value));
        tmpl_setf(entry, "most", "%lld", (long long)limit->most);
    }
    tmpl_set(env, "limited", extents->open->limits.n ? "yes" : "");
    tmpl_setf(env, "nlimits", "%d", extents->open->limits.n);
}

void extents_bind(struct extents *extents, struct tmpl_env *env) {
    tmpl_set(env, "open", extents ? "yes" : "");
    tmpl_list(env, "open_sizes");
    tmpl_list(env, "extents");
    tmpl_list(env, "limits");
    tmpl_set(env, "limited", "");
    if (!extents) return;
    struct strbuf members = {.arena = extents->arena};
    VEC_EACH(&extents->open->all, i, const struct open_size *size) {
        struct tmpl_env *entry = tmpl_entry(env, "open_sizes");
        tmpl_set(entry, "size", extents->words.at[i]);
        tmpl_set(entry, "said", str_is_plain(size->name) ? size->name : "");
        const bool shown = strcmp(size->name, extents->words.at[i]) != 0 && str_is_plain(size->name);
        strbuf_printf(&members, "%ssizes->%s", i ? ", " : "", extents->words.at[i]);
        tmpl_set(entry, "called", shown ? arena_printf(extents->arena, " '%s'", size->name) : "");
        tmpl_set(entry, "range", range_said(extents->arena, &size->range));
        tmpl_setf(entry, "least", "%lld", (long long)size->range.least);
        tmpl_setf(entry, "most", "%lld", (long long)size->range.most);
        tmpl_setf(entry, "step", "%lld", (long long)size->range.step);
        tmpl_setf(entry, "index", "%d", i);
        tmpl_set(entry, "kept", size->next ? "; the program keeps it, and reads none" : "");
        tmpl_set(entry, "next",
                 size->next ? arena_printf(extents->arena, ", .next = %d", 1 + find(extents, size->next)) : "");
    }
    bind_limits(extents, env);
    tmpl_set(env, "size_members", strbuf_text(&members));
    tmpl_setf(env, "nsizes", "%d", extents->open->all.n);
    tmpl_setf(env, "nextents", "%d", extents->all.n);
    VEC_EACH(&extents->all, i, const struct extent *extent) {
        struct tmpl_env *entry = tmpl_entry(env, "extents");
        tmpl_set(entry, "extent", extent->name);
        tmpl_set(entry, "meaning",
                 arena_printf(extents->arena, "  // %s", extents_said(extents, extents->arena, extent->value)));
        tmpl_set(entry, "is", i < extents->open->all.n ? arena_printf(extents->arena, "sizes[%d]", i) : extent->is);
    }
}
