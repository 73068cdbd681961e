#include "core/handshake.h"

#include "base/text/reason.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = RT_HASH_HEX - 1, WORK_DIGITS = DIGITS / 2 };

void rt_identify(const struct rt_program *program, char identity[RT_HASH_HEX]) {
    const char *text = program->work ? program->work : ""; /* programs written by hand may have none */
    char work[RT_HASH_HEX];
    rt_hash_bytes(program->key, strlen(program->key), identity);
    rt_hash_bytes(text, strlen(text), work);
    memcpy(identity, work, WORK_DIGITS);
}

int rt_compare_identities(struct rt *rt, int rank, const char *first, const char *other) {
    if (memcmp(first, other, DIGITS) == 0) return RT_OK;
    const bool same_work = memcmp(first, other, WORK_DIGITS) == 0;
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY, "rank %d runs another program than rank 0, compiled %s",
                        rank,
                        same_work ? "with another plan or by another build of rankc"
                                  : "from another model or with options that change results");
}

int rt_fail_agreed(struct rt *rt, const char *text) {
    const int status = rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY, "%s", text);
    rt->internal->agreed = true;
    return status;
}

int rt_gather_hashes(struct rt *rt, const char mine[RT_HASH_HEX], char **all) {
    if (!(*all = malloc((size_t)rt->world * RT_HASH_HEX))) return rt_fail_memory(rt);
    for (int r = 0; r < rt->world; r++) rt->internal->counts[r] = RT_HASH_HEX;
    const int status = rt->comm->driver->all_gather(rt->comm, *all, mine, rt->internal->counts);
    if (!status) return RT_OK;
    free(*all);
    return rt_fail_comm(rt, rt->comm, status);
}

static void put(struct rt_terms *terms, const char *text) {
    const size_t bytes = strlen(text) + 1;
    if (!terms->failed && terms->room - terms->bytes < bytes) {
        const size_t room = 2 * terms->room + bytes + 256;
        char *grown = realloc(terms->text, room);
        terms->failed = !grown;
        if (grown) terms->text = grown, terms->room = room;
    }
    if (terms->failed) return;
    memcpy(terms->text + terms->bytes, text, bytes);
    terms->bytes += bytes;
}

void rt_terms_add(struct rt_terms *terms, const char *name, const char *value, const char *shown) {
    char phrase[2 * RT_QUOTE_BYTES + 128];
    snprintf(phrase, sizeof phrase, "%s %s%s%s", shown ? "with" : "without", name, shown && shown[0] ? " " : "",
             shown ? shown : "");
    put(terms, name);
    put(terms, value);
    put(terms, phrase);
}

void rt_terms_free(struct rt_terms *terms) {
    free(terms->text);
    *terms = (struct rt_terms){0};
}

struct term {
    const char *name, *value, *phrase;
};

/* The term at *at, which is advanced past it. False at `end`, and where the text is not one of terms. */
static bool next_term(const char **at, const char *end, struct term *term) {
    const char **parts[] = {&term->name, &term->value, &term->phrase};
    for (int i = 0; i < 3; i++) {
        const char *stop = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
        if (!stop) return false;
        *parts[i] = *at;
        *at = stop + 1;
    }
    return true;
}

/* The hash of the terms' names and values. */
static void hash_terms(const struct rt_terms *terms, char hex[RT_HASH_HEX]) {
    const char *at = terms->text;
    struct rt_hash hash;
    struct term term;
    rt_hash_start(&hash);
    while (next_term(&at, terms->text + terms->bytes, &term))
        rt_hash_text(&hash, term.name), rt_hash_text(&hash, term.value);
    rt_hash_hex(&hash, hex);
}

static int refuse(struct rt *rt, int rank, const struct rt_terms *first, const struct rt_terms *other) {
    const char *a = first->text, *b = other->text;
    struct term mine, theirs;
    while (next_term(&a, first->text + first->bytes, &mine) && next_term(&b, other->text + other->bytes, &theirs)) {
        if (strcmp(mine.name, theirs.name) == 0 && strcmp(mine.value, theirs.value) == 0) continue;
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY,
                            "rank %d was started %s, but rank 0 %s: it must be the same on all ranks", rank,
                            theirs.phrase, mine.phrase);
    }
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY, "rank %d was started with other options than rank 0", rank);
}

/* The terms of rank 0 and of another rank come to all. */
static int tell(struct rt *rt, const struct rt_terms *mine, int rank) {
    struct rt_terms told[2] = {0};
    int status = RT_OK;
    for (int i = 0; i < 2 && !status; i++) {
        const int from = i ? rank : 0;
        uint64_t bytes = rt->rank == from ? mine->bytes : 0;
        status = rt->comm->driver->broadcast(rt->comm, &bytes, sizeof bytes, from);
        told[i].text = status ? NULL : malloc((size_t)bytes + 1);
        if (!told[i].text) break;
        told[i].bytes = (size_t)bytes;
        if (rt->rank == from) memcpy(told[i].text, mine->text, told[i].bytes);
        status = rt->comm->driver->broadcast(rt->comm, told[i].text, told[i].bytes, from);
    }
    if (!status)
        rt->comm->driver->barrier(rt->comm); /* a rank that leaves before would look like one that has failed */
    if (status)
        rt_fail_comm(rt, rt->comm, status);
    else
        status = told[1].text ? refuse(rt, rank, &told[0], &told[1]) : rt_fail_memory(rt);
    rt->internal->agreed = status == RT_ERROR_MISMATCH;
    rt_terms_free(&told[0]);
    rt_terms_free(&told[1]);
    return status;
}

int rt_agree(struct rt *rt, const struct rt_terms *terms) {
    char mine[RT_HASH_HEX], *all;
    if (terms->failed) return rt_fail_memory(rt);
    hash_terms(terms, mine);
    RT_TRY(rt_gather_hashes(rt, mine, &all));
    int other = 1;
    while (other < rt->world && memcmp(all, all + (size_t)other * RT_HASH_HEX, RT_HASH_HEX) == 0) other++;
    free(all);
    if (other == rt->world) return RT_OK;
    return tell(rt, terms, other);
}
