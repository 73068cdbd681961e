/* Unigram (Kudo, arXiv 1804.10959; SentencePiece's unigram_model.cc, EncodeOptimized): the tokens whose scores, which
 * are logarithms of probabilities, have the largest sum. */
#include "frontend/text/model.h"
#include "frontend/text/prefixes.h"

#include <math.h>

struct unigram {
    struct prefixes tokens;
    const double *scores; /* of ids */
    double unknown_score;
    int32_t unknown; /* -1: none */
    bool byte_fallback;
    int64_t unknown_id; /* as in the file */
};

/* A character without a token costs that much more than the worst token. */
#define UNKNOWN_PENALTY 10.0

static int read_token(struct reader *reader, const struct place *place, const struct rt_json *value, struct span *text,
                      double *score) {
    const struct rt_json *first = value->kind == RT_JSON_ARRAY ? value->first : NULL;
    if (!first || value->count != 2 || first->kind != RT_JSON_STRING || !rt_json_real(first->next, score))
        return read_malformed(reader, place, "a token and its score are needed");
    *text = (struct span){first->text, (size_t)first->count};
    if (!utf8_is_valid(*text)) return read_malformed(reader, place, "the token is not UTF-8");
    if (text->bytes > MOST_TOKEN_BYTES)
        return read_unsupported(reader, place, "a token longer than %d bytes", MOST_TOKEN_BYTES);
    return 0;
}

static int read_tokens(struct reader *reader, const struct place *place, const struct rt_json *object,
                       struct model *model) {
    const struct place below = {place, "vocab", 0};
    const struct rt_json *list = rt_json_member(object, "vocab");
    struct unigram *unigram = model->unigram;
    int32_t id = 0;
    int n = 0;
    if (!list || list->kind != RT_JSON_ARRAY) return read_malformed(reader, &below, "a list is needed");
    if (list->count >= MOST_IDS) return read_unsupported(reader, &below, "%d token(s) or more", MOST_IDS);
    double *scores = ARENA_ARRAY(reader->arena, double, list->count), least = INFINITY;
    struct prefix *texts = ARENA_ARRAY(reader->arena, struct prefix, list->count);
    for (const struct rt_json *token = list->first; token; token = token->next, id++) {
        const struct place at = {&below, NULL, id};
        struct span text;
        if (read_token(reader, &at, token, &text, &scores[id])) return -1;
        if (scores[id] < least) least = scores[id];
        vocabulary_add(&model->vocabulary, text, id);
        if (text.bytes) texts[n++] = (struct prefix){model->vocabulary.texts[id], id};
    }
    unigram->scores = scores;
    unigram->unknown_score = least - UNKNOWN_PENALTY;
    prefixes_make(reader->arena, &unigram->tokens, texts, n);
    model->size = id;
    return 0;
}

int unigram_read(struct reader *reader, const struct place *place, const struct rt_json *object, struct model *model) {
    static const struct field fields[] = {
        {"unk_id", FIELD_COUNT, offsetof(struct unigram, unknown_id), .optional = true, .otherwise = -1},
        {"byte_fallback", FIELD_BOOL, offsetof(struct unigram, byte_fallback), .optional = true},
        {"vocab", FIELD_IGNORED},
        {NULL},
    };
    const struct place unknown = {place, "unk_id", 0};
    struct unigram *unigram = model->unigram = ARENA_NEW(reader->arena, struct unigram);
    if (read_fields(reader, place, object, fields, unigram)) return -1;
    if (read_tokens(reader, place, object, model)) return -1;
    if (unigram->unknown_id >= model->size)
        return read_malformed(reader, &unknown, "an id that is not in the vocabulary");
    unigram->unknown = (int32_t)unigram->unknown_id;
    return 0;
}

/* The best tokens of the text up to a position: the last of them begins at `from`; -1: none end here. */
struct best {
    double score;
    int64_t from;
    int32_t id;
};

static void improve(struct best *best, double score, size_t from, int32_t id) {
    if (best->from < 0 || score > best->score) *best = (struct best){score, (int64_t)from, id};
}

static int find_best(const struct model *model, struct work *work, struct span word, struct best *best) {
    const struct unigram *unigram = model->unigram;
    for (size_t i = 0; i <= word.bytes; i++) best[i].from = -1;
    for (size_t at = 0; at < word.bytes;) {
        const double score = best[at].score;
        int32_t code;
        const struct prefix *found;
        const size_t character = (size_t)utf8_get(word.at + at, &code);
        bool single = false;
        struct prefix_walk walk = prefixes_walk(&unigram->tokens, (struct span){word.at + at, word.bytes - at});
        while ((found = prefixes_next(&walk))) {
            improve(&best[at + found->text.bytes], unigram->scores[found->value] + score, at, found->value);
            single |= found->text.bytes == character;
        }
        if (!single) {
            if (unigram->unknown < 0) return model_refuse(work, (struct span){word.at + at, character});
            improve(&best[at + character], unigram->unknown_score + score, at, unigram->unknown);
        }
        at += character;
    }
    return 0;
}

/* A piece of a text as its token, as those of its bytes, or as unknown. */
static void put_piece(const struct model *model, struct work *work, struct span piece, struct token_ids *ids) {
    const struct unigram *unigram = model->unigram;
    const int32_t id = vocabulary_id(&model->vocabulary, piece);
    if (id < 0 && unigram->byte_fallback && model_put_bytes(model, work, piece, ids)) return;
    VEC_PUSH(work->arena, ids, id >= 0 ? id : unigram->unknown);
}

/* Unknown pieces that follow each other are one. */
int unigram_encode(const struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    struct best *best = ARENA_ARRAY(work->arena, struct best, word.bytes + 1);
    struct {
        struct span *at;
        int n, capacity;
    } pieces = {0};
    bool unknown = false;
    if (find_best(model, work, word, best)) return -1;
    for (size_t end = word.bytes; end;) {
        const size_t from = (size_t)best[end].from;
        const bool joins = unknown && best[end].id == model->unigram->unknown;
        unknown = best[end].id == model->unigram->unknown;
        if (joins) {
            struct span *later = &pieces.at[pieces.n - 1];
            *later = (struct span){word.at + from, later->bytes + end - from};
        } else {
            VEC_PUSH(work->arena, &pieces, (struct span){word.at + from, end - from});
        }
        end = from;
    }
    for (int i = pieces.n - 1; i >= 0; i--) put_piece(model, work, pieces.at[i], ids);
    return 0;
}
