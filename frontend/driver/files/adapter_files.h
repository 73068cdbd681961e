/* Low-rank adapters as peft saves them (--adapter DIR[:name=N|:merge]): adapter_config.json and
 * adapter_model.safetensors. Files are untrusted.
 *
 * An adapter that is merged or trained is one file of the model, as the user has it. Otherwise the program has all that
 * are given, and one takes part at a time: Note [Sets of adapters] in adapter_sets.c. */
#ifndef FRONTEND_DRIVER_ADAPTER_FILES_H
#define FRONTEND_DRIVER_ADAPTER_FILES_H

#include "frontend/options/options.h"
#include "passes/train/lora.h"

#define ADAPTER_CONFIG  "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_PREFIX  "base_model.model." /* before the names of modules in the files */
#define ADAPTER_WRAPPED ".base_layer"       /* behind that of a module around which there is another wrapper */

struct adapter_files {
    VEC(struct lora_given) all;
    VEC(const char *) names; /* of the sets among which a program chooses; else none */
    const char *weights;     /* path of adapter_model.safetensors that is a file of the model; NULL: none is */
    const char *rules;       /* as --lora takes them, a line for each; of sets names and hashes; NULL: no adapters */
};

/* Reads those of --adapter; the bytes of the matrices stay mapped until the arena is freed. `stored.file` of all is 0,
 * and to be set to the number of the file among the model's. 0, or -1 after a diagnostic (E0395; E0205: of names). */
int adapter_files_read(struct adapter_files *files, const struct options *options, struct arena *arena,
                       struct diags *diags);

#endif
