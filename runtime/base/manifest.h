/* Numbers that the compiler writes into "values" of manifest.json and that a program reads there. */
#ifndef RT_BASE_MANIFEST_H
#define RT_BASE_MANIFEST_H

/* Bits: which non-finite values a tensor contains. */
enum { HAS_INFINITY = 1, HAS_NAN = 2 };

#endif
