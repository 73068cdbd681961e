/* JSON files with a checksum, such as manifest.json: the last member, "hash_above", is the hash of all text before it.
 * It detects damage and edits; it does not authenticate the origin. */
#ifndef RT_BASE_SEALED_H
#define RT_BASE_SEALED_H

#include "../text/json.h"

enum { RT_MANIFEST_FORMAT = 3 };

/* Adds the member and closes the outermost object of a writer with layout RT_JSON_LINES. */
void rt_sealed_close(struct rt_json_writer *writer);

/* Reads `name` below `directory`. *intact: whether the hash matches. The caller checks it after the format number,
 * because other formats may be sealed differently. NULL on error: RT_REASON_MISMATCH if there is a hash that does not
 * match, RT_REASON_CONTENT if the text is not JSON. */
struct rt_json_document *rt_sealed_read(const char *directory, const char *name, bool *intact, struct rt_reason *why);

/* Sets the reason for a file whose hash does not match: RT_REASON_MISMATCH. Returns false. */
bool rt_sealed_refuse(const char *name, struct rt_reason *why);

#endif
