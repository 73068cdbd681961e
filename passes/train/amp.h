/* Mixed precision (--amp): products compute in 16-bit floats; parameters, the optimizer and operators that need the
 * range of f32 stay f32. Which operators compute in which type is as in torch.autocast (amp.def); loss scaling is
 * that of torch.cuda.amp.GradScaler (PyTorch 2). */
#ifndef PASSES_TRAIN_AMP_H
#define PASSES_TRAIN_AMP_H

#include "passes/train/training.h"

/* Parses "fp16:loss_scale=1024,deny=*head*": 0, or -1 after a diagnostic. NULL: no mixed precision. */
int amp_parse(struct amp *amp, const char *text, struct arena *arena, struct diags *diags);

#endif
