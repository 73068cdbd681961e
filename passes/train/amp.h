/* Mixed precision (--amp): parameters, optimizer and what needs range stay f32, products are done in 16 bits. The
 * operators' classes are those of torch.autocast; loss scaling is that of torch.cuda.amp.GradScaler (PyTorch 2). */
#ifndef PASSES_TRAIN_AMP_H
#define PASSES_TRAIN_AMP_H

#include "passes/train/training.h"

/* Reads "fp16:loss_scale=1024,deny=*head*": 0, or -1 after a diagnostic. NULL gives no mixed precision. */
int amp_parse(struct amp *amp, const char *text, struct arena *arena, struct diags *diags);

#endif
