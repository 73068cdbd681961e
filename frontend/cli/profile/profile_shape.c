#include "frontend/cli/profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double shape_extent(const char *shape, int dimension) {
    for (; dimension > 0; dimension--) shape = strchr(shape, ',') + 1;
    return atof(shape);
}

int shape_elements(const char *shape) {
    int product = atoi(shape);
    for (const char *comma = strchr(shape, ','); comma; comma = strchr(comma + 1, ',')) product *= atoi(comma + 1);
    return product;
}

double shape_half(double most, double fast, double least, double slow) {
    const double slope = slow * most - fast * least;
    return slope > 0 ? most * least * fmax(fast - slow, 0) / slope : 0;
}
