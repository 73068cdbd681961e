#include "ir/decisions.h"

#include <stdlib.h>
#include <string.h>

#define DECISION(member, KIND, NAME, ...)                                                                              \
    {.name = NAME, .kind = DECISION_##KIND, .offset = offsetof(struct decisions, member), __VA_ARGS__},
const struct decision decision_rows[DECISIONS] = {
#include "ir/decisions.def"
};
#undef DECISION

/* Every member has the type of its row's kind; that of an enum is unsigned. */
#define DECISION_FLAG_TYPE  bool
#define DECISION_COUNT_TYPE int64_t
#define DECISION_PARTS_TYPE int64_t
#define DECISION_TEXT_TYPE  const char *
#define DECISION_WORD_TYPE  unsigned
#define DECISION(member, KIND, NAME, ...)                                                                              \
    _Static_assert(_Generic(((struct decisions *)0)->member, DECISION_##KIND##_TYPE : 1, default : 0), NAME);
#include "ir/decisions.def"
#undef DECISION

static const void *member(const struct decision *row, const struct decisions *decisions) {
    return (const char *)decisions + row->offset;
}

static const char *text_of(const struct decision *row, const struct decisions *decisions) {
    return row->kind == DECISION_TEXT ? *(const char *const *)member(row, decisions) : NULL;
}

int64_t decision_number(const struct decision *row, const struct decisions *decisions) {
    const void *value = member(row, decisions);
    switch (row->kind) {
    case DECISION_FLAG: return *(const bool *)value;
    case DECISION_COUNT:
    case DECISION_PARTS: return *(const int64_t *)value;
    case DECISION_WORD: return *(const unsigned *)value;
    case DECISION_TEXT: break;
    }
    return 0;
}

void decision_set(const struct decision *row, int64_t number, struct decisions *decisions) {
    void *value = (char *)decisions + row->offset;
    if (row->kind == DECISION_FLAG)
        *(bool *)value = number != 0;
    else if (row->kind == DECISION_WORD)
        *(unsigned *)value = (unsigned)number;
    else
        *(int64_t *)value = number;
}

bool decision_is_setting(const struct decision *row, const char *policy) {
    const size_t length = strlen(policy);
    for (const char *word = row->policies; word && *word; word += strcspn(word, " "), word += strspn(word, " "))
        if (strcspn(word, " ") == length && strncmp(word, policy, length) == 0) return true;
    return false;
}

bool decision_parse(const struct decision *row, const char *text, struct decisions *decisions) {
    char *end = NULL;
    if (row->kind == DECISION_TEXT) *(const char **)((char *)decisions + row->offset) = text;
    if (row->kind == DECISION_PARTS) {
        const double factor = strtod(text, &end);
        const bool fits = end > text && !*end && factor >= 0.001 && factor <= (double)row->most / 1000;
        if (fits) decision_set(row, (int64_t)(factor * 1000 + 0.5), decisions);
        return fits;
    }
    if (row->kind != DECISION_WORD) return true;
    const char *word = row->words;
    for (int64_t value = 0; *word; value++) {
        const size_t n = strcspn(word, "|");
        if (strlen(text) == n && strncmp(word, text, n) == 0) return decision_set(row, value, decisions), true;
        word += n + (word[n] == '|');
    }
    return false;
}

const char *decision_text(const struct decision *row, const struct decisions *decisions, struct arena *arena) {
    int64_t number = decision_number(row, decisions);
    const char *word = row->words;
    if (row->kind == DECISION_TEXT) return text_of(row, decisions);
    if (!number || number == row->usual) return NULL;
    if (row->kind == DECISION_FLAG) return "yes";
    if (row->kind == DECISION_PARTS) return arena_printf(arena, "%g", (double)number / 1000);
    if (row->kind == DECISION_COUNT) return arena_printf(arena, "%lld", (long long)number);
    for (; number; number--) word += strcspn(word, "|") + 1;
    return arena_copy(arena, word, strcspn(word, "|"));
}

bool decision_same(const struct decision *row, const struct decisions *a, const struct decisions *b) {
    const char *left = text_of(row, a), *right = text_of(row, b);
    if (row->kind != DECISION_TEXT) return decision_number(row, a) == decision_number(row, b);
    return left == right || (left && right && strcmp(left, right) == 0);
}

int64_t decision_key(const struct decision *row, const struct decisions *decisions) {
    return row->kind == DECISION_TEXT ? (int64_t)(intptr_t)text_of(row, decisions) : decision_number(row, decisions);
}

bool decision_is_made(const struct decision *row, const struct decisions *decisions) {
    return decision_number(row, decisions) || text_of(row, decisions);
}

void decision_leave(const struct decision *row, struct decisions *decisions) {
    if (row->kind == DECISION_TEXT) decision_parse(row, NULL, decisions);
    if (row->kind != DECISION_TEXT) decision_set(row, row->usual, decisions);
}

void decisions_take(struct decisions *to, const struct decisions *from) {
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++) {
        if (text_of(row, from)) decision_parse(row, text_of(row, from), to);
        if (decision_number(row, from)) decision_set(row, decision_number(row, from), to);
    }
}

bool decisions_sum_gradients(const struct decisions *decisions, int64_t micro_batches) {
    return micro_batches > 1 || decisions->zero >= ZERO_SUMS;
}

int decisions_zero_groups(const struct decisions *decisions) {
    return decisions->zero && decisions->zero_groups > 1 ? (int)decisions->zero_groups : 1;
}
