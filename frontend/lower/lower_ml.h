/* What the lowerings of domain ai.onnx.ml share. Their rows are samples: x is (n, features), or one sample (features).
 * Where the operators' texts are silent, they do what ONNX Runtime does.
 * Source: the schemas of domain ai.onnx.ml. */
#ifndef FRONTEND_LOWER_LOWER_ML_H
#define FRONTEND_LOWER_LOWER_ML_H

#include "frontend/lower/onnx_lower.h"

/* The type of scores: f32, or that of --dtype. */
enum rt_dtype ml_score_type(const struct lower *lower);
/* Input 0 as (n, features) in that type; -1 after E0378. */
int ml_samples(struct lower *lower, enum rt_dtype dtype);
/* A constant with these values, rounded to the type. */
int ml_constant(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims, const double *values);
/* Float attribute `name` as a constant of that shape; E0385 if the number of its values differs. */
int ml_floats(struct lower *lower, const char *name, int ndim, const int64_t *dims);

/* Attribute post_transform, given as text; -1 after E0385. */
enum ml_transform { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT };
int ml_transform(struct lower *lower, const char *text);
/* The scores (n, classes) after the transform. */
int ml_transformed(struct lower *lower, int scores, int transform);

/* Labels. Their number; -1 after a diagnostic: none are given, or they are strings and output 0 is wanted. */
int64_t ml_labels(struct lower *lower, const char *ints);
/* Sets output 0 to the labels that the index (n) picks. 0, or -1 after a diagnostic. */
int ml_pick_labels(struct lower *lower, const char *ints, int index);
/* i64 (n): 1 where a score (n, 1) is greater than the limit, else 0. */
int ml_exceeds(struct lower *lower, int score, double limit);
/* The index (n) of the first of the largest scores (n, classes). */
int ml_best(struct lower *lower, int scores);
/* The scores of both classes, of the score (n, 1) of one: (1 - s, s), or with `signs` (-s, s). */
int ml_both(struct lower *lower, int score, bool signs);

#endif
