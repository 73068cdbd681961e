#include "frontend/options/help_text.h"

#include <string.h>

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

/* A script being written, with words that are no choices of options.def. */
struct script {
    struct strbuf *out;
    const struct completion_words *words;
    int n;
    const struct completion_settings *settings;
};

static const char *given_words(const struct script *script, int option, enum verb verb) {
    for (int i = 0; i < script->n; i++)
        if (script->words[i].option == option && (option != COMPLETES_OPERAND || script->words[i].verb == verb))
            return script->words[i].words;
    return NULL;
}

/* The words that are values of an option, separated by spaces; NULL if it takes other values. */
static const char *words_of(const struct script *script, const struct option *row) {
    if (!row->choices) return given_words(script, (int)(row - option_rows), VERBS);
    struct strbuf words = {.arena = script->out->arena};
    for (int i = 1; i < CHOICES; i++)
        if (choice_rows[i].group == row->choices && !choice_rows[i].later)
            strbuf_printf(&words, "%s%s", words.length ? " " : "", choice_rows[i].word);
    return strbuf_text(&words);
}

static bool takes_file(const struct option *row) {
    return row->kind == OPTION_PATH;
}

/* Takes INPUT=FILE; the inputs are known where the verb's operand is a compiled model. */
static bool names_inputs(const struct option *row) {
    return row->kind == OPTION_FILES;
}

/* True if settings follow words of the option; "adamw:lr=". */
static bool has_settings(const struct script *script, int option) {
    for (const struct completion_settings *row = script->settings; row->word; row++)
        if (row->option == option && *row->settings) return true;
    return false;
}

/* The names of inputs, each with "=", in the manifests up to two directories below the operand. Anybody may have
 * written them: only plain names are taken, since compgen of bash expands its words. With "/." behind it, no operand is
 * an action of find, such as -delete. */
#define FIND_INPUTS                                                                                                    \
    "/.\" -maxdepth 3 -name manifest.json -exec "                                                                      \
    "sed -n '/^ *\"inputs\"/,/^ *\\]/s/.*\"name\": \"\\([A-Za-z0-9_.]*\\)\", \"dtype\".*/\\1=/p' '{}' + 2>/dev/null"

static const char *verb_names(struct arena *arena) {
    struct strbuf names = {.arena = arena};
    for (int i = 0; i < VERBS; i++) strbuf_printf(&names, "%s%s", names.length ? " " : "", verb_rows[i].name);
    return strbuf_text(&names);
}

/* The verb's actions, or "bash|zsh|fish", as words; NULL if its operand is something else. */
static const char *operand_words(const struct script *script, enum verb verb) {
    struct arena *arena = script->out->arena;
    if (verb == VERB_HELP) return verb_names(arena);
    const char *actions = action_names(verb, " ", arena), *given = given_words(script, COMPLETES_OPERAND, verb);
    if (verb != VERB_COMPLETIONS) return *actions ? actions : given;
    char *words = arena_strdup(arena, verb_rows[verb].operand);
    for (char *bar; (bar = strchr(words, '|'));) *bar = ' ';
    return words;
}

static void put_bash_verb(const struct script *script, enum verb verb) {
    struct strbuf *out = script->out;
    const char *operands = operand_words(script, verb);
    strbuf_printf(out, "    %s)\n        options='", verb_rows[verb].name);
    for (int i = 0, n = 0; i < OPTIONS; i++) {
        const struct option *row = &option_rows[option_order[i]];
        if (option_of_verb(row, verb)) strbuf_printf(out, "%s--%s", n++ ? " " : "", row->name);
    }
    strbuf_puts(out, "'\n");
    if (operands) strbuf_printf(out, "        operands='%s'\n", operands);
    strbuf_puts(out, "        ;;\n");
}

static void put_lines(struct strbuf *out, const char *const *lines) {
    for (; *lines; lines++) strbuf_printf(out, "%s\n", *lines);
}

static const char *const bash_start[] = {
    "_rankc() {",
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options='' operands='' words=''",
    "    [ \"$word\" != = ] || word=''", /* bash splits --name=value into three words */
    "    [ \"$word\" != : ] || word=''",
    "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}",
    "    [ \"${COMP_WORDS[COMP_CWORD]}\" != = ] || before=${COMP_WORDS[COMP_CWORD-1]}",
    "    COMPREPLY=()",
    "    case ${COMP_WORDS[1]} in",
    NULL,
};
/* Bash splits words at ":" and "=", so settings are found in the line. What is completed is what stands behind the last
 * of these, up to the cursor; `ahead` is the part of it that stays. */
static const char *const bash_settings[] = {
    "    local line=${COMP_LINE:0:COMP_POINT} token option last ahead",
    "    token=${line##* }",
    "    case $token in",
    "    --*=*) option=${token%%=*} token=${token#*=} ;;",
    "    *) line=${line% *} option=${line##* } ;;",
    "    esac",
    "    last=${token##*[:,]} ahead=${word%\"$last\"}",
    "    case \"$option $token\" in",
    NULL,
};
static const char *const bash_end[] = {
    "    esac",
    "    case $words in",
    "    *=)",
    "        [ \"${last#*=}\" = \"$last\" ] || return 0", /* the value of a setting */
    "        compopt -o nospace 2>/dev/null",
    "        COMPREPLY=($(compgen -P \"$ahead\" -W \"$words\" -- \"$last\"))",
    "        return 0 ;;",
    "    esac",
    "    if [ \"${word#-}\" != \"$word\" ]; then words=$options",
    "    elif [ -z \"$words\" ]; then words=$operands",
    "    fi",
    "    [ \"$COMP_CWORD\" != 1 ] || words=$verbs",
    "    [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))",
    "}",
    "complete -o default -F _rankc rankc",
    NULL,
};

static void put_bash(const struct script *script) {
    struct strbuf *out = script->out;
    put_lines(out, bash_start);
    for (int i = 0; i < VERBS; i++) put_bash_verb(script, (enum verb)i);
    strbuf_printf(out, "    esac\n    local verbs='%s'\n    case $before in\n", verb_names(out->arena));
    for (int i = 0; i < OPTIONS; i++) {
        const char *words = words_of(script, &option_rows[i]);
        if (words) strbuf_printf(out, "    --%s) words='%s' ;;\n", option_rows[i].name, words);
    }
    strbuf_puts(out, "    esac\n");
    put_lines(out, bash_settings);
    for (int i = 0; i < OPTIONS; i++)
        if (names_inputs(&option_rows[i]))
            strbuf_printf(out, "    '--%s '*=*) words='' ;;\n    '--%s '*) words=$(find \"${COMP_WORDS[2]}%s) ;;\n",
                          option_rows[i].name, option_rows[i].name, FIND_INPUTS);
    for (const struct completion_settings *row = script->settings; row->word; row++)
        if (*row->settings)
            strbuf_printf(out, "    '--%s %s:'*) words='%s' ;;\n", option_rows[row->option].name, row->word,
                          row->settings);
    put_lines(out, bash_end);
}

/* Text inside '...' of an _arguments specification: no quotes, brackets or colons. */
static void put_zsh_text(struct strbuf *out, const char *text) {
    for (; *text; text++)
        if (!strchr("'[]:", *text)) strbuf_putc(out, *text);
}

static void put_zsh_option(const struct script *script, const struct option *row) {
    struct strbuf *out = script->out;
    const char *words = words_of(script, row);
    bool repeats = option_is_repeatable(row);
    strbuf_printf(out, "            '%s--%s%s[", repeats ? "*" : "", row->name,
                  row->kind == OPTION_FLAG ? ""
                  : row->bare              ? "=-"
                                           : "=");
    put_zsh_text(out, row->help);
    strbuf_putc(out, ']');
    if (row->kind != OPTION_FLAG) {
        strbuf_puts(out, row->bare ? "::" : ":"); /* "::": the value may be left out */
        put_zsh_text(out, *row->metavar ? row->metavar : row->name);
        strbuf_putc(out, ':');
        if (has_settings(script, (int)(row - option_rows)))
            strbuf_printf(out, " _rankc_settings %s", row->name);
        else if (words)
            strbuf_printf(out, "(%s)", words);
        else if (names_inputs(row))
            strbuf_puts(out, " _rankc_input");
        else if (takes_file(row))
            strbuf_puts(out, "_files");
    }
    strbuf_puts(out, "' \\\n");
}

static void put_zsh_verb(const struct script *script, enum verb verb) {
    struct strbuf *out = script->out;
    const char *operands = operand_words(script, verb);
    strbuf_printf(out, "    %s)\n        _arguments \\\n", verb_rows[verb].name);
    for (int i = 0; i < OPTIONS; i++)
        if (option_of_verb(&option_rows[option_order[i]], verb)) put_zsh_option(script, &option_rows[option_order[i]]);
    if (operands)
        strbuf_printf(out, "            '1:word:(%s)'\n        ;;\n", operands);
    else
        strbuf_puts(out, "            '1:file:_files'\n        ;;\n");
}

/* The function that completes settings behind a word of the option $1. */
static void put_zsh_settings(const struct script *script) {
    struct strbuf *out = script->out;
    strbuf_puts(out, "_rankc_settings() {\n    case $1:$PREFIX in\n");
    for (const struct completion_settings *row = script->settings; row->word; row++)
        if (*row->settings)
            strbuf_printf(out, "    (%s:%s:*) set -- %s ;;\n", option_rows[row->option].name, row->word, row->settings);
    for (int i = 0; i < OPTIONS; i++)
        if (has_settings(script, i))
            strbuf_printf(out, "    (%s:*) compadd -- %s; return ;;\n", option_rows[i].name,
                          words_of(script, &option_rows[i]));
    strbuf_puts(out, "    esac\n    compset -P '*[:,]'\n    [[ $PREFIX = *=* ]] || compadd -S '' -- $@\n}\n");
}

static const char *const zsh_input[] = {
    "_rankc_input() {",
    "    if compset -P '*='; then _files",
    "    else compadd -S '' -- $(find \"$words[2]" FIND_INPUTS ")",
    "    fi",
    "}",
    NULL,
};
static const char *const zsh_middle[] = {
    "    )",
    "    if ((CURRENT == 2)); then",
    "        _describe verb verbs",
    "        return",
    "    fi",
    "    local verb=$words[2]",
    "    shift words",
    "    ((CURRENT--))",
    "    case $verb in",
    NULL,
};
static const char *const zsh_end[] = {
    "    esac",
    "}",
    "if [ \"$funcstack[1]\" = _rankc ]; then _rankc \"$@\"; else compdef _rankc rankc; fi",
    NULL,
};

static void put_zsh(const struct script *script) {
    struct strbuf *out = script->out;
    strbuf_puts(out, "#compdef rankc\n");
    put_zsh_settings(script);
    put_lines(out, zsh_input);
    strbuf_puts(out, "_rankc() {\n    local -a verbs\n    verbs=(\n");
    for (int i = 0; i < VERBS; i++) {
        strbuf_printf(out, "        '%s:", verb_rows[i].name);
        put_zsh_text(out, verb_rows[i].help);
        strbuf_puts(out, "'\n");
    }
    put_lines(out, zsh_middle);
    for (int i = 0; i < VERBS; i++) put_zsh_verb(script, (enum verb)i);
    put_lines(out, zsh_end);
}

static void put_fish_text(struct strbuf *out, const char *text) {
    strbuf_puts(out, " -d '");
    for (; *text; text++) strbuf_printf(out, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
    strbuf_puts(out, "'\n");
}

static void put_fish_option(const struct script *script, enum verb verb, const struct option *row) {
    struct strbuf *out = script->out;
    const char *words = words_of(script, row);
    strbuf_printf(out, "complete -c rankc -n '__fish_seen_subcommand_from %s' -l %s", verb_rows[verb].name, row->name);
    if (row->letter) strbuf_printf(out, " -s %c", row->letter);
    if (words)
        strbuf_printf(out, " %s-a '%s'", row->bare ? "" : "-x ", words);
    else if (names_inputs(row))
        strbuf_puts(out, " -x -a '(__rankc_inputs)'");
    else if (row->kind != OPTION_FLAG && !row->bare)
        strbuf_puts(out, takes_file(row) ? " -r" : " -x");
    put_fish_text(out, row->help);
    for (const struct completion_settings *behind = script->settings; behind->word; behind++)
        if (&option_rows[behind->option] == row && *behind->settings)
            strbuf_printf(
                out, "complete -c rankc -n '__fish_seen_subcommand_from %s' -l %s -x -a '(__rankc_settings %s %s)'\n",
                verb_rows[verb].name, row->name, behind->word, behind->settings);
}

/* What the functions print completes the whole value. */
static const char *const fish_start[] = {
    "function __rankc_value",
    "    string replace -r '^--[^=]*=' '' -- (commandline -ct)",
    "end",
    "function __rankc_settings",
    "    set -l value (__rankc_value)",
    "    string match -q -- \"$argv[1]:*\" $value; or return",
    "    string match -qr '=[^:,]*$' -- $value; and return",
    "    printf '%s\\n' (string replace -r '[^:,]*$' '' -- $value)$argv[2..-1]",
    "end",
    "function __rankc_inputs",
    "    set -l words (commandline -opc)",
    "    set -l value (string match -r '([^=]*=)(.*)' -- (__rankc_value))",
    "    if test -z \"$value\"; find \"$words[3]" FIND_INPUTS,
    "    else; printf '%s\\n' $value[2](__fish_complete_path $value[3])",
    "    end",
    "end",
    NULL,
};

static void put_fish(const struct script *script) {
    struct strbuf *out = script->out;
    put_lines(out, fish_start);
    for (int v = 0; v < VERBS; v++) {
        const char *operands = operand_words(script, (enum verb)v);
        strbuf_printf(out, "complete -c rankc -n __fish_use_subcommand -f -a %s", verb_rows[v].name);
        put_fish_text(out, verb_rows[v].help);
        if (operands)
            strbuf_printf(out, "complete -c rankc -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", verb_rows[v].name,
                          operands);
        for (int i = 0; i < OPTIONS; i++)
            if (option_of_verb(&option_rows[option_order[i]], (enum verb)v))
                put_fish_option(script, (enum verb)v, &option_rows[option_order[i]]);
    }
}

bool help_completions(struct strbuf *out, const char *shell, const struct completion_words *words, int n,
                      const struct completion_settings *settings) {
    static void (*const writers[])(const struct script *) = {put_bash, put_zsh, put_fish};
    const struct script script = {out, words, n, settings};
    for (int i = 0; shells[i]; i++) {
        if (strcmp(shells[i], shell)) continue;
        writers[i](&script);
        return true;
    }
    return false;
}
