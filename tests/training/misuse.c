/* Calls of the training interface with what they cannot take: each returns a status, and leaves the job as it was.
 *
 *     misuse DIR
 *
 * Prints a line "CALL: STATUS TEXT" for each on rank 0, and afterwards that a step still works:
 * "step: LOSS". Then the job in which rank 0 leaves early, and the one in which rank 0 closes its rank in a hook. */
#define _DEFAULT_SOURCE 1

#include <math.h>
#include <stdio.h>

#include "model.h"

static float x[model_MICRO_BATCHES * model_COUNT_x], target[model_MICRO_BATCHES * model_COUNT_target];
static const char *directory;

static void tell(const char *call, int status, const struct rt *rt) {
    if (!rt || rt_rank(rt) == 0) printf("%s: %d %s\n", call, status, status ? rt_error(rt) : "");
}
#define TELL(rt, call) tell(#call, call, rt)

static int step(struct rt *rt, struct rt_train_result *result) {
    return model_train(rt, &(struct model_batch){.x = x, .target = target}, result);
}

static int gradients(struct rt *rt) {
    const void *const ports[] = {x, target}, *const *const samples[] = {ports};
    return model_gradients(rt, samples, NULL, NULL, NULL);
}

static int misuse(struct rt *rt, void *context) {
    const struct rt_position none = {-1, 0, -1};
    struct rt_train_result result;
    (void)context;
    TELL(rt, model_step(rt));
    RT_TRY(gradients(rt));
    TELL(rt, model_clip_gnorm(rt, -1, NULL));
    TELL(rt, model_clip_gnorm(rt, NAN, NULL));
    TELL(rt, model_scale_grads(rt, INFINITY));
    TELL(rt, model_zero_grad(rt));
    TELL(rt, model_step(rt));
    TELL(rt, model_train(rt, NULL, NULL));
    TELL(rt, model_infer(rt, NULL));
    TELL(rt, model_train_step(rt, NULL, NULL, NULL, NULL));
    TELL(rt, model_train_step(rt, (const void *const *[]){NULL}, NULL, NULL, NULL));
    TELL(rt, model_save(rt, NULL, &none));
    TELL(rt, model_save(rt, "checkpoints", NULL));
    TELL(rt, model_save(rt, "checkpoints", &none));
    TELL(rt, rt_save_begin(rt, "checkpoints", &none));
    TELL(rt, model_load(rt, NULL, "latest", NULL));
    TELL(rt, model_load(rt, "checkpoints", NULL, NULL));
    TELL(rt, rt_hold_checkpoints(rt, NULL, true));
    TELL(rt, rt_set_accumulate(rt, 0));
    TELL(rt, rt_set_learning_rate(rt, NAN));
    TELL(rt, rt_set_reduce_hooks(rt, NULL));
    RT_TRY(step(rt, &result));
    TELL(rt, model_step(rt)); /* its gradients are used up */
    if (rt_rank(rt) == 0) printf("step: %.9g\n", result.loss);
    return RT_OK;
}

static int leave(struct rt *rt, void *context) {
    (void)context;
    return rt_rank(rt) == 0 ? RT_OK : step(rt, NULL);
}

static int close_in_run(struct rt *rt, void *context) {
    (void)context;
    if (rt_rank(rt) == 0) model_close(rt);
    return step(rt, NULL);
}

static int close_now(void *context, struct rt *rt) {
    (void)context;
    rt_close(rt);
    return RT_OK;
}

static int close_in_hook(struct rt *rt, void *context) {
    (void)context;
    RT_TRY(rt_set_reduce_hooks(rt, &(struct rt_reduce_hooks){.before = close_now}));
    return step(rt, NULL);
}

int main(int argc, char **argv) {
    struct rt *rt;
    if (argc != 2) return 2;
    directory = argv[1];
    for (int i = 0; i < model_MICRO_BATCHES * model_COUNT_x; i++) x[i] = (float)(i % 7) / 7;
    TELL(NULL, model_open(NULL, NULL));
    TELL(NULL, model_open(&rt, NULL));
    TELL(NULL, rt_open(&rt, NULL, &(struct rt_options){.directory = directory}));
    TELL(NULL, model_open(&rt, (&(struct rt_options){.directory = directory, .join_timeout = -1})));
    TELL(NULL, model_run_threads(directory, 0, NULL, NULL));
    TELL(NULL, rt_run_threads(NULL, NULL, misuse, NULL));
    TELL(NULL, model_train(NULL, &(struct model_batch){0}, NULL));
    TELL(NULL, model_infer(NULL, &(struct model_tensors){0}));
    TELL(NULL, model_step(NULL));
    TELL(NULL, model_save(NULL, "checkpoints", NULL));
    model_close(NULL);
    rt_abort(NULL);
    TELL(NULL, model_run_threads(directory, 0, misuse, NULL));
    TELL(NULL, model_run_threads(directory, 0, leave, NULL));
    TELL(NULL, model_run_threads(directory, 0, close_in_run, NULL));
    TELL(NULL, model_run_threads(directory, 0, close_in_hook, NULL));
    return 0;
}
