/* Paths as text. */
#ifndef RT_BASE_PATH_H
#define RT_BASE_PATH_H

#include <stdbool.h>

/* The last component of a path: what follows the last slash. */
const char *rt_path_name(const char *path);

/* True if the text ends in `suffix`, such as ".npy". */
bool rt_has_suffix(const char *text, const char *suffix);

#endif
