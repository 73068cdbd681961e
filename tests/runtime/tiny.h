/* A program as rankc would generate it, small enough to write by hand, for any number of ranks on one mesh axis:
 *
 *     y = x w      x (2,6) f32; w (6,5) cut on its columns, so that y is all-gathered; w is stored as f64
 *     z = y v      v (5,4) cut on its rows, so that z is all-reduced; v is stored as fp16, at an odd offset
 *     first = ids[0]   ids (3) i64; an index beyond 9 makes rank `ids[1]` fail
 */
#ifndef TINY_H
#define TINY_H

#include "generated.h"

#define TINY_M 2
#define TINY_K 6
#define TINY_N 5
#define TINY_P 4

/* Describes a program whose scale units have `shards` ranks. */
void tiny_program(struct rt_program *program, int shards);

/* TINY_DO=RANK:WHAT@STEP in the environment makes a rank misbehave in that step, in instruction 1 after its call; in
 * step 0, before it joins. WHAT is a row of the table in tiny_misbehave.c. Does nothing for others. */
void tiny_misbehave(int rank, int64_t step, struct rt *rt);

/* Writes manifest.json, location.json and the weights' file below `directory`, which exists. */
void tiny_write(const char *directory);

/* Inputs that tiny_write's weights go with, and what one rank makes of them, summed in order of the index. */
extern const float tiny_x[TINY_M * TINY_K];
void tiny_expect(float y[TINY_M * TINY_N], float z[TINY_M * TINY_P], int shards);

#endif
