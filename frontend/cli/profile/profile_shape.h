/* Arithmetic on the rows of rankc profile's tables of probes. A shape is a text such as "512,1024". */
#ifndef FRONTEND_CLI_PROFILE_SHAPE_H
#define FRONTEND_CLI_PROFILE_SHAPE_H

double shape_extent(const char *shape, int dimension);
int shape_elements(const char *shape);

/* The extent at which half of a rate is reached, where the part that is reached is extent / (extent + half): from the
 * rate `fast` at the extent `most`, and `slow` at `least`. 0: the rate does not depend on the extent, or depends on it
 * in another way. */
double shape_half(double most, double fast, double least, double slow);

#endif
