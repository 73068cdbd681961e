/* JSON texts that protect themselves: the last member of the object, "hash_above", is the hash of all the text before
 * it. manifest.json is one. The hash notices damage and edits; it proves no origin. */
#ifndef RT_BASE_SEALED_H
#define RT_BASE_SEALED_H

#include "json.h"

enum { RT_MANIFEST_FORMAT = 2 };

/* Adds the member and closes the object, the outermost one of a writer of RT_JSON_LINES. */
void rt_sealed_close(struct rt_json_writer *writer);

/* True if the text ends in the hash of what is before it. */
bool rt_sealed_holds(const char *text, size_t bytes);

/* Reads `name` below `directory`; *intact tells whether the seal holds, which is for the caller to look at after the
 * format: a text of another format may be sealed in another way. NULL: RT_REASON_MISMATCH where a seal shows that the
 * text is not what was written, RT_REASON_CONTENT where it is no JSON at all. */
struct rt_json_document *rt_sealed_read(const char *directory, const char *name, bool *intact, struct rt_reason *why);

/* The reason for a text whose seal does not hold: RT_REASON_MISMATCH. Always false. */
bool rt_sealed_refuse(const char *name, struct rt_reason *why);

#endif
