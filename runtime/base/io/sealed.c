#include "sealed.h"

#include "file.h"
#include "../number/hash.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT ((size_t)4 << 30)

#define BEGIN ",\n  \"hash_above\": \"" /* cannot occur in a string, where quotes are escaped */
#define END   "\"\n}"

void rt_sealed_close(struct rt_json_writer *writer) {
    char hex[RT_HASH_HEX];
    rt_hash_bytes(writer->text, writer->bytes, hex);
    rt_json_key_text(writer, "hash_above", hex);
    rt_json_close(writer, '}');
}

/* Start of the last member; NULL: it has another name. */
static const char *find_seal(const char *text, size_t bytes) {
    const size_t length = strlen(BEGIN) + RT_HASH_HEX - 1 + strlen(END);
    while (bytes && text[bytes - 1] == '\n') bytes--;
    const char *at = bytes > length ? text + bytes - length : NULL;
    return at && memcmp(at, BEGIN, strlen(BEGIN)) == 0 ? at : NULL;
}

/* True if the text ends with the hash of the text before it. */
static bool rt_sealed_holds(const char *text, size_t bytes) {
    const char *at = find_seal(text, bytes);
    char hex[RT_HASH_HEX];
    if (!at) return false;
    rt_hash_bytes(text, (size_t)(at - text), hex);
    return memcmp(at + strlen(BEGIN), hex, RT_HASH_HEX - 1) == 0 &&
           memcmp(at + strlen(BEGIN) + RT_HASH_HEX - 1, END, strlen(END)) == 0;
}

bool rt_sealed_refuse(const char *name, struct rt_reason *why) {
    return rt_refuse_kind(why, RT_REASON_MISMATCH, "'%s' was modified after it was written: its hash differs",
                          rt_quote_text(name).text);
}

struct rt_json_document *rt_sealed_read(const char *directory, const char *name, bool *intact, struct rt_reason *why) {
    void *text;
    size_t bytes;
    if (!rt_file_read_below(directory, name, LIMIT, &text, &bytes, why)) return NULL;
    struct rt_json_document *document = rt_json_parse(text, bytes, why);
    *intact = rt_sealed_holds(text, bytes);
    if (!document && find_seal(text, bytes) && !*intact && why->kind == RT_REASON_CONTENT) rt_sealed_refuse(name, why);
    free(text);
    return document;
}
