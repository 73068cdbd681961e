#include "cuda_runtime.h" /* cudnn.h asks for this part of it */
