/* nccl.h asks for it, and uses nothing of it. */
