#include "codegen/text/names.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "ir/base/str.h"
#include "ir/ir.h"
#include "passes/train/roles.h"

/* Words that a variable cannot be called: keywords of C11, C++ and CUDA, macros of the C library that have small
 * letters, and what every generated function declares. */
static const char reserved[] =
    "alignas alignof and and_eq asm assert at auto bitand bitor bool break case catch char char16_t "
    "char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval "
    "constexpr constinit continue decltype default delete dim3 do double dynamic_cast else enum environ "
    "errno exp explicit export extern false float fma for friend goto half i i386 if inline instruction "
    "int int16_t int32_t int64_t int8_t linux log long memcpy memset mutable namespace new noexcept not "
    "not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "restrict return row rows rt short signed size_t sizeof sqrt static static_assert static_cast std stderr stdin "
    "stdout stream struct switch template this thread_local throw true try typedef typeid typename typeof "
    "uint16_t uint32_t uint64_t uint8_t union unix unsigned using virtual void volatile wchar_t while xor "
    "xor_eq ";

void names_begin(struct names *names, struct arena *arena) {
    names->arena = arena;
    map_init(&names->taken, arena);
    for (const char *word = reserved; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        names_reserve(names, arena_copy(arena, word, length));
        word += length;
    }
}

void names_reserve(struct names *names, const char *identifier) {
    map_set(&names->taken, identifier, 1);
}

bool names_says_nothing(const char *name) {
    return name_kind_of(name) == KIND_NUMBER || name_kind_of(name) == KIND_OPERAND;
}

bool names_says_no_member(const char *name) {
    return name_kind_of(name) != KIND_OTHER && name_kind_of(name) != KIND_BUFFER;
}

enum { COMPONENTS_MOST = 32 };

/* A name cut at "/", "." and ":"; of a longer one, the last components. */
struct components {
    int n;
    struct component {
        const char *text;
        size_t length;
    } at[COMPONENTS_MOST];
};

static struct components components_of(const char *name) {
    struct components all = {0};
    for (const char *c = name; *c;) {
        if (strncmp(c, "node_", 5) == 0 && c[5]) c += 5; /* PyTorch's names of nodes */
        const size_t length = strcspn(c, "/.:");
        if (length && all.n == COMPONENTS_MOST) memmove(all.at, all.at + 1, (size_t)--all.n * sizeof *all.at);
        if (length) all.at[all.n++] = (struct component){c, length};
        c += length + (c[length] != 0);
    }
    return all;
}

static bool same_component(const struct component *a, const struct component *b) {
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* "accumulate" and "Accumulate". */
static bool same_word(const struct component *a, const struct component *b) {
    return a->length == b->length && strncasecmp(a->text, b->text, a->length) == 0;
}

/* Cuts "_output_0" and, if `numbered`, "_12" off the end. */
static void cut_number(struct component *component, bool numbered) {
    static const char output[] = "_output_0";
    const size_t length = sizeof output - 1;
    if (component->length > length && memcmp(component->text + component->length - length, output, length) == 0)
        component->length -= length;
    size_t digits = component->length;
    while (digits > 0 && isdigit((unsigned char)component->text[digits - 1])) digits--;
    if (numbered && digits > 1 && digits < component->length && component->text[digits - 1] == '_')
        component->length = digits - 1;
}

/* Operators whose result is called as the module that computes it. */
static bool is_of_module(const struct component *component) {
    static const char *const operators[] = {
        "Add",    "BatchNormalization", "Conv", "Gather", "Gemm", "GroupNormalization", "LayerNormalization",
        "MatMul", "RMSNormalization"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strlen(operators[i]) == component->length && memcmp(operators[i], component->text, component->length) == 0)
            return true;
    return false;
}

/* Takes the operators of modules and repetitions out of the components behind `*from`, unless there are no others. */
static void drop_operators(struct components *all, int *from) {
    struct components kept = {0};
    for (int c = *from; c < all->n; c++)
        if (!is_of_module(&all->at[c]) && !(kept.n && same_word(&kept.at[kept.n - 1], &all->at[c])))
            kept.at[kept.n++] = all->at[c];
    if (!kept.n) return;
    *all = kept;
    *from = 0;
}

static void put_word(struct strbuf *words, const struct component *component) {
    bool gap = words->length > 0;
    for (size_t i = 0; i < component->length; i++) {
        const unsigned char c = (unsigned char)component->text[i];
        const bool good = c < 128 && isalnum(c);
        if (good && gap && words->length) strbuf_putc(words, '_');
        if (good) strbuf_putc(words, (char)tolower(c));
        gap = !good;
    }
}

const char *names_words(struct arena *arena, const char *first, const char *last) {
    struct components a = components_of(first);
    const struct components b = components_of(last);
    int from = 0;
    for (int c = 0; c < a.n && a.n == b.n; c++)
        if (!same_component(&a.at[c], &b.at[c])) from = c + 1;
    if (a.n != b.n)
        return "input"; /* a layer reads the result of the layer before; the first layer reads that of another part */
    const bool all_differ = a.n && from == a.n;
    if (all_differ) from = a.n - 1;
    if (a.n) cut_number(&a.at[a.n - 1], all_differ);
    drop_operators(&a, &from);
    struct strbuf words;
    for (;; from++) { /* the last components that fit, from one that begins with a letter */
        strbuf_init(&words, arena);
        for (int c = from; c < a.n; c++) put_word(&words, &a.at[c]);
        const bool number = isdigit((unsigned char)*strbuf_text(&words));
        if ((words.length <= NAME_MOST && !number) || from + 1 >= a.n) break;
    }
    return arena_printf(arena, "%.*s", (int)NAME_MOST, strbuf_text(&words));
}

/* True for names as those of functions of the runtime, of layers and of CUDA's libraries. */
static bool looks_like_function(const char *identifier) {
    static const char *const prefixes[] = {"rt_", "cu"};
    for (int phase = 0; phase < PHASES && strncmp(identifier, "layer_", 6) == 0; phase++)
        if (strncmp(identifier + 6, phase_names[phase], strlen(phase_names[phase])) == 0) return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(identifier, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

const char *names_take(struct names *names, const char *words, const char *otherwise) {
    const char *stem = islower((unsigned char)*words) ? words : otherwise;
    if (looks_like_function(stem)) stem = arena_printf(names->arena, "v_%.*s", NAME_MOST - 2, stem);
    const char *made = stem;
    for (int number = 2; map_find(&names->taken, made) >= 0; number++) {
        const char *end = arena_printf(names->arena, "_%d", number);
        made = arena_printf(names->arena, "%.*s%s", NAME_MOST - (int)strlen(end), stem, end);
    }
    names_reserve(names, made);
    return made;
}
