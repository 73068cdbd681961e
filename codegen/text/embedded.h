/* The files that code generation has built in. */
#ifndef CODEGEN_EMBEDDED_H
#define CODEGEN_EMBEDDED_H

#include "ir/base/embedded.h"

extern const struct embedded embedded[];         /* templates/ */
extern const struct embedded embedded_runtime[]; /* runtime/, and xxhash.h */

#endif
