#include "codegen/kernel/expr_words.h"

#include <string.h>

#include "ir/base/str.h"

enum { MOST_WORDS = 4 };

struct words {
    const char *word[MOST_WORDS + 1];
    int n; /* MOST_WORDS + 1: too many */
};

/* What an operator or function is called in a name. Others have their own name. */
static const struct {
    const char *operator, * word;
} spellings[] = {
    {"+", "add"},   {"-", "sub"},     {"*", "mul"},      {"/", "div"},    {"<", "less"},
    {"<=", "less"}, {">", "greater"}, {">=", "greater"}, {"==", "equal"}, {"!=", "differ"},
    {"&&", "and"},  {"||", "or"},     {"!", "not"},
};

static const char *word_of(const struct expr *expr) {
    if (expr->kind == EXPR_CHOICE) return "where";
    if (expr->kind == EXPR_UNARY && strcmp(expr->name, "-") == 0) return "neg";
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(expr->name, spellings[i].operator) == 0) return spellings[i].word;
    return expr->name;
}

static void put_word(struct words *words, const char *word) {
    for (int i = 0; i < words->n; i++)
        if (strcmp(words->word[i], word) == 0) return;
    if (words->n <= MOST_WORDS) words->word[words->n++] = word;
}

static bool is_negative_number(const struct expr *expr) {
    return expr->kind == EXPR_UNARY && expr->arg[0]->kind == EXPR_NUMBER && strcmp(expr->name, "-") == 0;
}

/* Operands come before what is computed from them. An expression has at most EXPR_DEPTH levels. */
static void collect(struct words *words, const struct expr *expr) {
    if (expr->kind == EXPR_NUMBER || expr->kind == EXPR_NAME || is_negative_number(expr)) return;
    for (int i = 0; i < expr->nargs; i++) collect(words, expr->arg[i]);
    put_word(words, word_of(expr));
}

const char *expr_words(struct arena *arena, const struct expr_chain *chain) {
    struct words words = {0};
    struct strbuf out;
    for (int i = 0; i < chain->nnamed; i++) collect(&words, chain->named[i]);
    for (int i = 0; i < chain->nvalues; i++) collect(&words, chain->value[i]);
    if (words.n > MOST_WORDS) return NULL;
    if (words.n == 0) return "cast"; /* from one type to another is what is left */
    strbuf_init(&out, arena);
    for (int i = 0; i < words.n; i++) strbuf_printf(&out, "%s%s", i ? "_" : "", words.word[i]);
    return strbuf_text(&out);
}
