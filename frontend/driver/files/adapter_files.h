/* Low-rank adapters as peft saves them (--adapter DIR[:merge]): adapter_config.json and adapter_model.safetensors.
 * Files are untrusted. */
#ifndef FRONTEND_DRIVER_ADAPTER_FILES_H
#define FRONTEND_DRIVER_ADAPTER_FILES_H

#include "passes/train/lora.h"

#define ADAPTER_CONFIG  "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_PREFIX  "base_model.model." /* before the names of modules in the files */

struct adapter_files {
    const char *weights; /* path of adapter_model.safetensors; NULL: no adapters */
    VEC(struct lora_given) all;
    const char *rules; /* of all, as --lora takes them, a line for each; NULL: no adapters */
};

/* Reads them from DIR or DIR:merge; the bytes of the matrices stay mapped until the arena is freed. `stored.file` of
 * all is 0, and to be set to the number of the file among the model's. 0, or -1 after a diagnostic (E0395). */
int adapter_files_read(struct adapter_files *files, const char *text, struct arena *arena, struct diags *diags);

#endif
