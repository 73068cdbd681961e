/* Byte-pair encoding (Sennrich et al., arXiv 1508.07909): the characters of a word, of which pairs are merged in the
 * order of the list of merges. */
#include "frontend/text/model.h"

#include <string.h>

/* What merging a pair of tokens gives, in a hash table without gaps in its chains; rank -1: free. */
struct merge {
    int32_t left, right, rank, id;
};

struct bpe {
    struct merge *merges;
    int nslots;                 /* a power of 2 */
    struct span prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix */
    struct span unknown;        /* unk_token; at NULL: none */
    bool fuse_unknown, byte_fallback, ignore_merges;
};

static int slot_of(const struct bpe *bpe, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    int slot = (int)(key * 0x9e3779b97f4a7c15u >> 33) & (bpe->nslots - 1);
    for (; bpe->merges[slot].rank >= 0; slot = (slot + 1) & (bpe->nslots - 1))
        if (bpe->merges[slot].left == left && bpe->merges[slot].right == right) break;
    return slot;
}

/* NULL: the pair is not merged */
static const struct merge *find_merge(const struct bpe *bpe, int32_t left, int32_t right) {
    const struct merge *merge = &bpe->merges[slot_of(bpe, left, right)];
    return merge->rank >= 0 ? merge : NULL;
}

/* The two tokens of a merge: "a b" or ["a", "b"]. */
static int read_pair(struct reader *reader, const struct place *place, const struct rt_json *value,
                     struct span pair[2]) {
    const struct rt_json *first = value->kind == RT_JSON_ARRAY ? value->first : NULL;
    if (first && value->count == 2 && first->kind == RT_JSON_STRING && first->next->kind == RT_JSON_STRING) {
        pair[0] = (struct span){first->text, (size_t)first->count};
        pair[1] = (struct span){first->next->text, (size_t)first->next->count};
        return 0;
    }
    if (value->kind != RT_JSON_STRING) return read_malformed(reader, place, "two tokens are needed");
    const size_t bytes = (size_t)value->count;
    const char *space = memchr(value->text, ' ', bytes), *end = value->text + bytes;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        return read_malformed(reader, place, "two tokens with one space between them are needed");
    pair[0] = (struct span){value->text, (size_t)(space - value->text)};
    pair[1] = (struct span){space + 1, (size_t)(end - space - 1)};
    return 0;
}

static int read_merge(struct reader *reader, const struct place *place, const struct rt_json *value, int32_t rank,
                      struct model *model) {
    struct bpe *bpe = model->bpe;
    struct span pair[2] = {{0}};
    char joined[2 * MOST_TOKEN_BYTES];
    if (read_pair(reader, place, value, pair)) return -1;
    const int32_t left = vocabulary_id(&model->vocabulary, pair[0]), right = vocabulary_id(&model->vocabulary, pair[1]);
    if (left < 0 || right < 0) return read_malformed(reader, place, "a token that is not in the vocabulary");
    if (pair[1].bytes < bpe->prefix.bytes)
        return read_malformed(reader, place, "a token shorter than continuing_subword_prefix");
    const size_t rest = pair[1].bytes - bpe->prefix.bytes;
    memcpy(joined, pair[0].at, pair[0].bytes);
    memcpy(joined + pair[0].bytes, pair[1].at + bpe->prefix.bytes, rest);
    const int32_t id = vocabulary_id(&model->vocabulary, (struct span){joined, pair[0].bytes + rest});
    if (id < 0) return read_malformed(reader, place, "what it makes is not in the vocabulary");
    bpe->merges[slot_of(bpe, left, right)] = (struct merge){left, right, rank, id};
    return 0;
}

static int read_merges(struct reader *reader, const struct place *place, const struct rt_json *object,
                       struct model *model) {
    const struct place below = {place, "merges", 0};
    const struct rt_json *list = rt_json_member(object, "merges");
    struct bpe *bpe = model->bpe;
    int32_t rank = 0;
    if (!list || list->kind != RT_JSON_ARRAY) return read_malformed(reader, &below, "a list is needed");
    if (list->count >= MOST_IDS) return read_unsupported(reader, &below, "%d merges or more", MOST_IDS);
    for (bpe->nslots = 16; bpe->nslots < list->count * 3 / 2 + 1;) bpe->nslots *= 2;
    bpe->merges = ARENA_ARRAY(reader->arena, struct merge, bpe->nslots);
    for (int i = 0; i < bpe->nslots; i++) bpe->merges[i].rank = -1;
    for (const struct rt_json *merge = list->first; merge; merge = merge->next) {
        const struct place at = {&below, NULL, rank};
        if (merge->kind == RT_JSON_STRING && strncmp(merge->text, "#version", 8) == 0) continue;
        if (read_merge(reader, &at, merge, rank++, model)) return -1;
    }
    return 0;
}

/* Dropout leaves merges out at random, in training. */
static int check_dropout(struct reader *reader, const struct place *place, const struct rt_json *object) {
    const struct place below = {place, "dropout", 0};
    const struct rt_json *value = rt_json_member(object, "dropout");
    double dropout = 0;
    if (!value || value->kind == RT_JSON_NULL) return 0;
    if (!rt_json_real(value, &dropout)) return read_malformed(reader, &below, "a number is needed");
    return dropout == 0 ? 0 : read_unsupported(reader, &below, "merges that are dropped at random");
}

int bpe_read(struct reader *reader, const struct place *place, const struct rt_json *object, struct model *model) {
    static const struct field fields[] = {
        {"unk_token", FIELD_TEXT, offsetof(struct bpe, unknown), .optional = true},
        {"continuing_subword_prefix", FIELD_TEXT, offsetof(struct bpe, prefix), .optional = true},
        {"end_of_word_suffix", FIELD_TEXT, offsetof(struct bpe, suffix), .optional = true},
        {"fuse_unk", FIELD_BOOL, offsetof(struct bpe, fuse_unknown), .optional = true},
        {"byte_fallback", FIELD_BOOL, offsetof(struct bpe, byte_fallback), .optional = true},
        {"ignore_merges", FIELD_BOOL, offsetof(struct bpe, ignore_merges), .optional = true},
        {"dropout", FIELD_IGNORED, .optional = true},
        {"vocab", FIELD_IGNORED},
        {"merges", FIELD_IGNORED},
        {NULL},
    };
    model->bpe = ARENA_NEW(reader->arena, struct bpe);
    if (read_fields(reader, place, object, fields, model->bpe)) return -1;
    if (check_dropout(reader, place, object)) return -1;
    if (model_read_vocabulary(reader, place, object, model)) return -1;
    return read_merges(reader, place, object, model);
}

/* A token of a word in a list without those that were merged into others (`bytes` 0). */
struct symbol {
    int32_t id;
    int before, next; /* -1: none */
    size_t bytes;
};

/* A merge that may be done: the one with the least rank comes first, then the leftmost. */
struct candidate {
    int32_t rank, id;
    int at;
};

struct word {
    const struct bpe *bpe;
    struct arena *arena;
    struct {
        struct symbol *at;
        int n, capacity;
    } symbols;
    struct {
        struct candidate *at;
        int n, capacity;
    } heap;
};

static bool comes_first(const struct candidate *a, const struct candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_candidate(struct word *word, int at) {
    const struct symbol *left = &word->symbols.at[at], *right = &word->symbols.at[left->next];
    const struct merge *merge = find_merge(word->bpe, left->id, right->id);
    if (!merge) return;
    const struct candidate candidate = {merge->rank, merge->id, at};
    VEC_PUSH(word->arena, &word->heap, candidate);
    struct candidate *heap = word->heap.at;
    int i = word->heap.n - 1;
    for (; i && comes_first(&candidate, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = candidate;
}

static struct candidate pop_candidate(struct word *word) {
    struct candidate *heap = word->heap.at;
    const struct candidate top = heap[0], last = heap[--word->heap.n];
    const int n = word->heap.n;
    int i = 0;
    for (int child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && comes_first(&heap[child + 1], &heap[child])) child++;
        if (!comes_first(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void merge_pair(struct word *word, int at, int32_t id) {
    struct symbol *left = &word->symbols.at[at], *right = &word->symbols.at[left->next];
    left->id = id;
    left->bytes += right->bytes;
    left->next = right->next;
    right->bytes = 0;
    if (left->next >= 0) word->symbols.at[left->next].before = at;
    if (left->before >= 0) push_candidate(word, left->before);
    if (left->next >= 0) push_candidate(word, at);
}

/* A candidate is out of date if one of its symbols was merged; as in the package, another pair there that makes the
 * same token stands for it. */
static void merge_all(struct word *word) {
    for (int i = 0; i + 1 < word->symbols.n; i++) push_candidate(word, i);
    while (word->heap.n) {
        const struct candidate top = pop_candidate(word);
        const struct symbol *left = &word->symbols.at[top.at];
        if (!left->bytes || left->next < 0) continue;
        const struct merge *merge = find_merge(word->bpe, left->id, word->symbols.at[left->next].id);
        if (merge && merge->id == top.id) merge_pair(word, top.at, top.id);
    }
}

static void add_symbol(struct word *word, int32_t id, size_t bytes) {
    const int n = word->symbols.n;
    if (n) word->symbols.at[n - 1].next = n;
    VEC_PUSH(word->arena, &word->symbols, (struct symbol){id, n - 1, -1, bytes});
}

/* The token of one character of a word, with what the model puts before or behind it. */
static struct span decorate(const struct bpe *bpe, struct arena *arena, struct span character, bool first, bool last) {
    if ((first || !bpe->prefix.bytes) && (!last || !bpe->suffix.bytes)) return character;
    struct strbuf out = {.arena = arena};
    if (!first) strbuf_add(&out, bpe->prefix.at, bpe->prefix.bytes);
    strbuf_add(&out, character.at, character.bytes);
    if (last) strbuf_add(&out, bpe->suffix.at, bpe->suffix.bytes);
    return (struct span){out.text, out.length};
}

/* The unknown token, for `bytes` bytes that wait to be added: 0, none do. They are added before the next token that is
 * known, and so behind tokens of bytes that stand between. */
struct waiting {
    int32_t id;
    size_t bytes;
};

static void add_waiting(struct word *word, struct waiting *waiting) {
    if (waiting->bytes) add_symbol(word, waiting->id, waiting->bytes);
    waiting->bytes = 0;
}

static int add_unknown(const struct model *model, struct work *work, struct word *word, struct span character,
                       struct waiting *waiting) {
    const struct bpe *bpe = model->bpe;
    if (!bpe->unknown.at) return 0; /* it is left out */
    if (waiting->bytes && bpe->fuse_unknown) return waiting->bytes += character.bytes, 0;
    add_waiting(word, waiting);
    *waiting = (struct waiting){vocabulary_id(&model->vocabulary, bpe->unknown), character.bytes};
    return waiting->id >= 0 ? 0 : model_refuse(work, character);
}

static int split_word(const struct model *model, struct work *work, struct span text, struct word *word) {
    struct waiting waiting = {0};
    struct token_ids bytes = {0};
    for (size_t i = 0; i < text.bytes;) {
        int32_t code;
        const struct span character = {text.at + i, (size_t)utf8_get(text.at + i, &code)};
        const bool first = i == 0, last = i + character.bytes == text.bytes;
        const struct span token = decorate(model->bpe, work->arena, character, first, last);
        const int32_t id = vocabulary_id(&model->vocabulary, token);
        i += character.bytes;
        if (id >= 0) {
            add_waiting(word, &waiting);
            add_symbol(word, id, character.bytes);
            continue;
        }
        bytes.n = 0;
        if (model->bpe->byte_fallback && model_put_bytes(model, work, token, &bytes))
            for (int b = 0; b < bytes.n; b++) add_symbol(word, bytes.at[b], 1);
        else if (add_unknown(model, work, word, character, &waiting))
            return -1;
    }
    add_waiting(word, &waiting);
    return 0;
}

int bpe_encode(const struct model *model, struct work *work, struct span text, struct token_ids *ids) {
    struct word word = {.bpe = model->bpe, .arena = work->arena};
    const int32_t whole = model->bpe->ignore_merges ? vocabulary_id(&model->vocabulary, text) : -1;
    if (whole >= 0) {
        VEC_PUSH(work->arena, ids, whole);
        return 0;
    }
    if (split_word(model, work, text, &word)) return -1;
    merge_all(&word);
    for (int i = 0; i < word.symbols.n; i++)
        if (word.symbols.at[i].bytes) VEC_PUSH(work->arena, ids, word.symbols.at[i].id);
    return 0;
}
