#include "frontend/text/added.h"

#include <string.h>

const struct added_token *added_of_id(const struct added *added, int32_t id) {
    const int index = map_get(&added->of_id, (const char *)&id, sizeof id);
    return index < 0 ? NULL : &added->tokens.at[index];
}

static bool same_token(const struct added_token *a, const struct added_token *b) {
    return a->content.bytes == b->content.bytes && memcmp(a->content.at, b->content.at, a->content.bytes) == 0 &&
           a->single_word == b->single_word && a->left == b->left && a->right == b->right &&
           a->normalized == b->normalized && a->special == b->special;
}

/* What decoders get of the token. */
static int show(struct reader *reader, const struct parts *normalizers, struct added_token *token) {
    struct work work = {reader->arena, reader->diags, reader->path};
    struct text text = {token->content, 0};
    token->shown = token->content;
    if (!token->normalized) return 0;
    if (normalize(normalizers, &work, &text)) return -1;
    token->shown = text.span;
    return 0;
}

/* The id of a token that is added: one that there is, or the next. */
static int32_t id_of(const struct model *model, const struct added *added, struct span content) {
    const int32_t before = map_get(&added->contents, content.at, content.bytes);
    const int32_t known = before >= 0 ? before : vocabulary_id(&model->vocabulary, content);
    return known >= 0 ? known : model->size + added->count;
}

static int add(struct reader *reader, const struct place *place, int64_t expected, const struct model *model,
               const struct parts *normalizers, struct added_token token, struct added *added) {
    const struct span content = token.content;
    token.id = id_of(model, added, content);
    if (token.id != expected) {
        const char *name = str_escape(reader->arena, content.at, content.bytes, 80);
        diag_warning(reader->diags, 397, reader->path, "token '%s' has id %lld in added_tokens and becomes %d", name,
                     (long long)expected, (int)token.id);
    }
    const struct added_token *before = added_of_id(added, token.id);
    if (before && same_token(before, &token)) return 0;
    if (show(reader, normalizers, &token)) return -1;
    if (!token.shown.bytes)
        return read_unsupported(reader, place, "an added token of which normalization leaves nothing");
    const bool is_new = map_get(&added->contents, content.at, content.bytes) < 0;
    if (is_new && vocabulary_id(&model->vocabulary, content) < 0) added->count++;
    map_put(&added->contents, content.at, content.bytes, token.id);
    if (token.special) map_put(&added->special, content.at, content.bytes, 1);
    map_put(&added->of_id, (const char *)&token.id, sizeof token.id, added->tokens.n);
    VEC_PUSH(reader->arena, &added->tokens, token);
    return 0;
}

struct token_fields {
    struct added_token token;
    int64_t id;
};

static int read_token(struct reader *reader, const struct place *place, const struct rt_json *value,
                      const struct model *model, const struct parts *normalizers, struct added *added) {
    static const struct field fields[] = {
        {"id", FIELD_COUNT, offsetof(struct token_fields, id)},
        {"content", FIELD_TEXT, offsetof(struct token_fields, token.content)},
        {"single_word", FIELD_BOOL, offsetof(struct token_fields, token.single_word)},
        {"lstrip", FIELD_BOOL, offsetof(struct token_fields, token.left)},
        {"rstrip", FIELD_BOOL, offsetof(struct token_fields, token.right)},
        {"normalized", FIELD_BOOL, offsetof(struct token_fields, token.normalized)},
        {"special", FIELD_BOOL, offsetof(struct token_fields, token.special)},
        {NULL},
    };
    struct token_fields read = {0};
    if (value->kind != RT_JSON_OBJECT) return read_malformed(reader, place, "an object is needed");
    if (read_fields(reader, place, value, fields, &read)) return -1;
    if (read.token.content.bytes > MOST_TOKEN_BYTES)
        return read_unsupported(reader, place, "a token longer than %d bytes", MOST_TOKEN_BYTES);
    return read.token.content.bytes ? add(reader, place, read.id, model, normalizers, read.token, added) : 0;
}

/* The set of the tokens that are normalized or not. A token whose id another one took does not count. */
static int make_set(struct reader *reader, const struct place *place, struct added *added, bool normalized,
                    struct prefixes *set) {
    struct prefix *texts = ARENA_ARRAY(reader->arena, struct prefix, added->tokens.n);
    int n = 0;
    VEC_EACH(&added->tokens, i, const struct added_token *token) {
        if (token->normalized == normalized && added_of_id(added, token->id) == token)
            texts[n++] = (struct prefix){token->shown, token->id};
    }
    return prefixes_make(reader->arena, set, texts, n)
               ? 0
               : read_malformed(reader, place, "two added tokens are the same text when normalized");
}

int added_read(struct reader *reader, const struct place *place, const struct rt_json *value, const struct model *model,
               const struct parts *normalizers, struct added *added) {
    int64_t index = 0;
    map_init(&added->contents, reader->arena);
    map_init(&added->of_id, reader->arena);
    map_init(&added->special, reader->arena);
    if (value && value->kind != RT_JSON_ARRAY) return read_malformed(reader, place, "a list is needed");
    if (value && value->count > MOST_IDS - model->size) return read_unsupported(reader, place, "too many tokens");
    for (const struct rt_json *token = value ? value->first : NULL; token; token = token->next) {
        const struct place below = {place, NULL, index++};
        if (read_token(reader, &below, token, model, normalizers, added)) return -1;
    }
    return make_set(reader, place, added, false, &added->literal) ||
                   make_set(reader, place, added, true, &added->normalized)
               ? -1
               : 0;
}

static bool is_word_before(struct span text, size_t at) {
    int32_t code;
    if (!at) return false;
    utf8_get(text.at + utf8_last((struct span){text.at, at}), &code);
    return unicode_is_word(code);
}

static bool is_word_behind(struct span text, size_t at) {
    int32_t code;
    if (at == text.bytes) return false;
    utf8_get(text.at + at, &code);
    return unicode_is_word(code);
}

/* Where the white space before or behind a place begins or ends. */
static size_t skip_left(struct span text, size_t at) {
    int32_t code;
    while (at) {
        const size_t last = utf8_last((struct span){text.at, at});
        utf8_get(text.at + last, &code);
        if (!unicode_is_space(code)) break;
        at = last;
    }
    return at;
}

static size_t skip_right(struct span text, size_t at) {
    int32_t code;
    while (at < text.bytes) {
        const int length = utf8_get(text.at + at, &code);
        if (!unicode_is_space(code)) break;
        at += (size_t)length;
    }
    return at;
}

static void put_piece(struct work *work, const struct text *text, size_t from, size_t to, int32_t id,
                      struct pieces *pieces) {
    const size_t origin = text->origin > from ? text->origin - from : 0;
    if (from >= to) return;
    const struct text part = {{text->span.at + from, to - from}, origin < to - from ? origin : to - from};
    VEC_PUSH(work->arena, pieces, (struct piece){part, id});
}

/* At each place the longest token counts, and search goes on behind it even if it is no single word. */
void added_split(const struct added *added, const struct prefixes *set, struct work *work, const struct text *text,
                 struct pieces *pieces) {
    const struct span span = text->span;
    size_t done = 0;
    for (size_t at = 0; set->n && at < span.bytes;) {
        const struct prefix *found = prefixes_longest(set, (struct span){span.at + at, span.bytes - at});
        if (!found) {
            at++;
            continue;
        }
        const struct added_token *token = added_of_id(added, found->value);
        const size_t end = at + found->text.bytes;
        const bool within = token->single_word && (is_word_before(span, at) || is_word_behind(span, end));
        const size_t left = !within && token->left ? skip_left(span, at) : at;
        at = end;
        if (within) continue;
        const size_t from = token->left && left < done ? done : left;
        const size_t to = token->right ? skip_right(span, end) : end;
        put_piece(work, text, done, from, -1, pieces);
        put_piece(work, text, from, to, token->id, pieces);
        done = to;
    }
    put_piece(work, text, done, span.bytes, -1, pieces);
}
