/* Input files besides the model: rules (--pas manual:FILE), a plan (--load-plan), a schedule (--schedule FILE), a
 * machine (--machine), operators (--ops), values of bound inputs (--bind), and with --state the configurations beside
 * the model. Their content, never their names, enters
 * the reuse keys. */
#ifndef FRONTEND_DRIVER_SIDE_FILES_H
#define FRONTEND_DRIVER_SIDE_FILES_H

#include "frontend/config/generation.h"
#include "frontend/driver/files/adapter_files.h"
#include "frontend/options/options.h"
#include "frontend/import/import.h"
#include "passes/pipeline.h"
#include "passes/plan/constrain/constraints.h"
#include "passes/plan/machine/machine.h"
#include "passes/plan/plan.h"
#include "passes/plan/policy/rules.h"
#include "passes/train/small_weights.h"
#include "runtime/base/number/hash.h"

struct side_files {
    const char *policy;              /* "" where a plan is loaded */
    struct policy_plugin *plugin;    /* NULL: none; its mesh is in `rules` */
    struct constraints *rules;       /* NULL: none */
    struct plan *plan;               /* NULL: none */
    struct annotations *annotations; /* of the model, for policy annotated; NULL: none */
    struct plan *refine;             /* the partial plan of --refine, also in `constraints`; NULL: none */
    struct constraints *constraints; /* of --constraints, --require and --forbid, on nodes; NULL: none */
    struct machine machine;          /* of --machine; .name NULL: not given */
    /* of the options, with the mesh of the plan or the rules, and a schedule of a file as text (schedule_grid.h) */
    struct decisions decisions;
    bool own_mesh; /* the mesh is not that of the options */
    int nbinds;
    struct import_bind *binds;
    struct rt_tensor *loss_weights;     /* of classes, of --loss; NULL: none */
    struct small_weights small_weights; /* of --weight-dtype */
    struct adapter_files adapters;      /* of --adapter */
    struct generation generation;       /* empty without --state */
    struct graph *operators;            /* declares those of --ops; NULL: none */
    char constraints_hash[RT_HASH_HEX], refine_hash[RT_HASH_HEX];
    char machine_hash[RT_HASH_HEX], plan_hash[RT_HASH_HEX], binds_hash[RT_HASH_HEX], ops_hash[RT_HASH_HEX],
        loss_hash[RT_HASH_HEX], names_hash[RT_HASH_HEX], generation_hash[RT_HASH_HEX]; /* "" where there are none */
};

/* Reads and checks all of them. 0, or -1 after diagnostics. The contents lie in the arena. */
int side_files_read(struct side_files *files, const struct options *options, struct arena *arena, struct diags *diags);

/* E0204 if --plan-ngpus is given and is not the size of the mesh that a file has. */
int side_files_check_mesh(const struct side_files *files, const struct options *options, struct diags *diags);

#endif
