/* The layout of generated C, C++ and CUDA: members that are zero are left out of initialisers, and lines are broken at
 * LAYOUT_COLUMNS where they can be. Templates and calls are written without regard to either. */
#ifndef CODEGEN_LAYOUT_H
#define CODEGEN_LAYOUT_H

#include "ir/base/arena.h"

enum { LAYOUT_COLUMNS = 100 };

const char *layout_source(struct arena *arena, const char *text);

#endif
