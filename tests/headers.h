/* What sources of generated programs include (templates/c), for tests/meson.build. */
#include <math.h>
#include <rankc/generated.h>
#include <rankc/kernels/c/kernels.h>
#include <rankc/kernels/c/math.h>
#include <string.h>
