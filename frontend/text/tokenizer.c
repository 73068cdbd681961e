#include "frontend/text/tokenizer.h"

#include <string.h>

#include "frontend/text/tokenizer_parts.h"
#include "ir/base/own.h"

static int read_version(struct reader *reader, const struct rt_json *root) {
    const struct place place = {NULL, "version", 0};
    const struct rt_json *version = rt_json_member(root, "version");
    const char *text = rt_json_text(version);
    if (!version) return 0;
    if (!text) return read_malformed(reader, &place, "a string is needed");
    return strcmp(text, "1.0") == 0 ? 0
                                    : read_unsupported(reader, &place, "version %s", diag_quote(reader->diags, text));
}

static int read_members(struct reader *reader, const struct rt_json *root, struct tokenizer *tokenizer) {
    static const struct field fields[] = {
        {"version", FIELD_IGNORED, .optional = true},
        {"truncation", FIELD_IGNORED, .optional = true},
        {"padding", FIELD_IGNORED, .optional = true},
        {"added_tokens", FIELD_IGNORED, .optional = true},
        {"normalizer", FIELD_IGNORED, .optional = true},
        {"pre_tokenizer", FIELD_IGNORED, .optional = true},
        {"post_processor", FIELD_IGNORED, .optional = true},
        {"decoder", FIELD_IGNORED, .optional = true},
        {"model", FIELD_IGNORED},
        {NULL},
    };
    static const struct place normalizer = {NULL, "normalizer", 0}, pretokenizer = {NULL, "pre_tokenizer", 0},
                              decoder = {NULL, "decoder", 0}, processor = {NULL, "post_processor", 0},
                              model = {NULL, "model", 0}, added = {NULL, "added_tokens", 0};
    const struct rt_json *decoders = rt_json_member(root, "decoder");
    if (root->kind != RT_JSON_OBJECT) return read_malformed(reader, NULL, "an object is needed");
    if (read_fields(reader, NULL, root, fields, NULL) || read_version(reader, root)) return -1;
    tokenizer->has_decoder = decoders && decoders->kind != RT_JSON_NULL;
    if (read_normalizers(reader, &normalizer, rt_json_member(root, "normalizer"), &tokenizer->normalizers) ||
        read_pretokenizers(reader, &pretokenizer, rt_json_member(root, "pre_tokenizer"), &tokenizer->pretokenizers) ||
        read_decoders(reader, &decoder, decoders, &tokenizer->decoders) ||
        frame_read(reader, &processor, rt_json_member(root, "post_processor"), &tokenizer->frame) ||
        model_read(reader, &model, rt_json_member(root, "model"), &tokenizer->model))
        return -1;
    return added_read(reader, &added, rt_json_member(root, "added_tokens"), &tokenizer->model, &tokenizer->normalizers,
                      &tokenizer->added);
}

struct tokenizer *tokenizer_open(struct arena *arena, struct diags *diags, const char *path) {
    struct rt_reason why;
    struct tokenizer *tokenizer = ARENA_NEW(arena, struct tokenizer);
    struct reader reader = {arena, diags, arena_strdup(arena, path)};
    struct rt_json_document *document = own_json(arena, path, &why);
    if (!document) return diag_refusal(diags, 397, EXIT_MALFORMED, path, &why), NULL;
    tokenizer->path = reader.path;
    const int status = read_members(&reader, rt_json_root(document), tokenizer);
    arena_release(arena, document);
    return status ? NULL : tokenizer;
}

/* Splits a text into added tokens and words. */
static int split(const struct tokenizer *tokenizer, struct work *work, struct span text, struct pieces *pieces) {
    const struct added *added = &tokenizer->added;
    struct pieces literal = {0};
    int32_t code;
    const struct text whole = {text, text.bytes ? (size_t)utf8_get(text.at, &code) : 0};
    added_split(added, &added->literal, work, &whole, &literal);
    VEC_EACH(&literal, i, struct piece *const piece) {
        if (piece->id >= 0) {
            VEC_PUSH(work->arena, pieces, *piece);
            continue;
        }
        if (normalize(&tokenizer->normalizers, work, &piece->text)) return -1;
        added_split(added, &added->normalized, work, &piece->text, pieces);
    }
    return pretokenize(&tokenizer->pretokenizers, work, pieces);
}

static int encode(struct tokenizer *tokenizer, struct work *work, struct span text, struct token_ids *ids) {
    struct pieces pieces = {0};
    if (split(tokenizer, work, utf8_repair(work->arena, text), &pieces)) return -1;
    VEC_EACH(&pieces, i, const struct piece *piece) {
        if (piece->id >= 0)
            VEC_PUSH(work->arena, ids, piece->id);
        else if (model_encode(&tokenizer->model, work, piece->text.span, ids))
            return -1;
    }
    return 0;
}

int tokenizer_encode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *text,
                     size_t bytes, bool special, struct token_ids *ids) {
    struct arena *scratch = arena_scratch(arena);
    struct work work = {scratch, diags, tokenizer->path};
    struct token_ids made = {0};
    int status = work_too_long(&work, bytes) ? -1 : 0;
    if (!status) status = encode(tokenizer, &work, (struct span){text, bytes}, &made);
    if (!status) frame_put(&tokenizer->frame, arena, &made, special, ids);
    arena_release(arena, scratch);
    return status;
}

/* What decoders get of an id; NULL: nothing. */
static const struct span *shown(const struct tokenizer *tokenizer, int32_t id) {
    const struct added_token *token = added_of_id(&tokenizer->added, id);
    return token ? &token->shown : vocabulary_text(&tokenizer->model.vocabulary, id);
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
    const struct span *text = shown(tokenizer, id);
    return text && map_get(&tokenizer->added.special, text->at, text->bytes) >= 0;
}

static int decode_ids(const struct tokenizer *tokenizer, struct work *work, const int32_t *ids, int n,
                      bool skip_special, struct span *text) {
    static const struct span space = {" ", 1};
    struct texts texts = {0};
    for (int i = 0; i < n; i++) {
        const struct span *token = shown(tokenizer, ids[i]);
        if (!token || (skip_special && tokenizer_is_special(tokenizer, ids[i]))) continue;
        if (!tokenizer->has_decoder && texts.n) VEC_PUSH(work->arena, &texts, space);
        VEC_PUSH(work->arena, &texts, *token);
    }
    return decode(&tokenizer->decoders, work, &texts, text);
}

const char *tokenizer_decode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const int32_t *ids,
                             int n, bool skip_special, size_t *bytes) {
    struct arena *scratch = arena_scratch(arena);
    struct work work = {scratch, diags, tokenizer->path};
    struct span text;
    const char *copy = NULL;
    if (decode_ids(tokenizer, &work, ids, n, skip_special, &text) == 0) {
        copy = arena_copy(arena, text.at, text.bytes);
        if (bytes) *bytes = text.bytes;
    }
    arena_release(arena, scratch);
    return copy;
}

const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t id) {
    const struct added_token *token = added_of_id(&tokenizer->added, id);
    if (token) return token->content.at;
    const struct span *text = vocabulary_text(&tokenizer->model.vocabulary, id);
    return text ? text->at : NULL;
}
