#include "passes/plan/policy/rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/policy/rankc_policy.h"

/* Note [Plug-ins in a process of their own]
 *
 * A library of the user may crash, end its process, or write where it should not. It is loaded and called in a child
 * process, which writes what the library answers to a pipe: text, then a verdict as the last byte. A child that ends
 * without a verdict is reported with its signal or status. */

enum { MOST_TEXT = 64 << 20 };
enum verdict { NO_VERDICT = 0, ANSWERED = 1, REFUSED = 2, OTHER_VERSION = 3 };

typedef const char *(*mesh_fn)(int plan_ngpus);
typedef int (*decide_fn)(const struct rankc_policy_graph *graph, void (*rule)(void *to, const char *text), void *to);

struct policy_plugin {
    const char *path, *library; /* as the user wrote it; absolute */
    int plan_ngpus;
    const struct rankc_policy_graph *graph; /* whose rules are asked for; NULL: the mesh for plan_ngpus ranks is */
};

static int refuse(struct diags *diags, const char *path, const char *why) {
    return diag_error(diags, 428, EXIT_MALFORMED, diag_quote(diags, path), "%s", why);
}

/* A function of the library; NULL: it has none of that name. ISO C does not convert objects to functions. */
static void find_function(void *library, const char *name, void *function, size_t size) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size);
}

static void put_rule(void *to, const char *text) {
    fprintf(to, "%s\n", text ? text : "NULL");
}

static enum verdict say(FILE *to, enum verdict verdict, const char *why) {
    fputs(why, to);
    return verdict;
}

/* Loads the library and writes its answer, or why it gives none. */
static enum verdict ask_library(const struct policy_plugin *asked, FILE *to) {
    void *library = dlopen(asked->library, RTLD_NOW | RTLD_LOCAL);
    mesh_fn mesh_of;
    decide_fn decide;
    if (!library) return say(to, REFUSED, dlerror());
    find_function(library, "rankc_policy", &decide, sizeof decide);
    find_function(library, "rankc_policy_mesh", &mesh_of, sizeof mesh_of);
    const int *version = dlsym(library, "rankc_policy_version");
    if (!decide || !version) return say(to, REFUSED, "no plug-in: it defines no rankc_policy and rankc_policy_version");
    if (*version != RANKC_POLICY_VERSION) {
        fprintf(to, "%d", *version);
        return OTHER_VERSION;
    }
    if (asked->graph)
        return decide(asked->graph, put_rule, to) ? say(to, REFUSED, "the policy refuses this model") : ANSWERED;
    const char *mesh = mesh_of ? mesh_of(asked->plan_ngpus) : NULL;
    if (mesh) fprintf(to, "mesh %s\n", mesh);
    return ANSWERED;
}

static void run_child(const struct policy_plugin *asked, int end) {
    FILE *to = fdopen(end, "w");
    signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a policy that does not return ends with rankc */
    if (to) {
        const enum verdict verdict = ask_library(asked, to);
        fflush(stdout); /* what the library printed */
        fputc((int)verdict, to);
        fclose(to);
    }
    _exit(0);
}

static void read_all(int end, struct strbuf *text) {
    char bytes[1 << 16];
    while (text->length <= MOST_TEXT) {
        const ssize_t n = read(end, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        strbuf_add(text, bytes, (size_t)n);
    }
}

/* Takes the last byte of the text, which is the verdict of a child that ended by itself. */
static enum verdict take_verdict(struct strbuf *text, int status) {
    if (!text->length || !WIFEXITED(status) || WEXITSTATUS(status)) return NO_VERDICT;
    const unsigned char last = (unsigned char)text->text[text->length - 1];
    if (last > OTHER_VERSION) return NO_VERDICT;
    text->text[--text->length] = '\0';
    return (enum verdict)last;
}

static int refuse_ended(struct diags *diags, const char *path, int status) {
    const char *how =
        WIFSIGNALED(status)
            ? arena_printf(diags->arena, "the policy crashed: %s", strsignal(WTERMSIG(status)))
            : arena_printf(diags->arena, "the policy ended its process with status %d instead of returning",
                           WEXITSTATUS(status));
    return refuse(diags, path, how);
}

static int judge(const char *path, struct diags *diags, struct strbuf *text, int status) {
    if (text->length > MOST_TEXT) return refuse(diags, path, "its rules are longer than 64 MiB");
    switch (take_verdict(text, status)) {
    case ANSWERED: return 0;
    case REFUSED: return refuse(diags, path, strbuf_text(text));
    case OTHER_VERSION:
        return diag_error(diags, 429, EXIT_MISMATCH, diag_quote(diags, path),
                          "a plug-in for version %s of rankc_policy.h, and this is version %d: compile it anew",
                          strbuf_text(text), RANKC_POLICY_VERSION);
    default: return refuse_ended(diags, path, status);
    }
}

/* The text of the answer. 0, or -1 after a diagnostic. */
static int ask(const struct policy_plugin *asked, struct diags *diags, struct strbuf *text) {
    const char *path = asked->path;
    int ends[2], status = 0;
    fflush(NULL); /* a library that ends its process writes what is buffered */
    if (pipe(ends) < 0) return diag_errno(diags, 601, NULL, "open a pipe to", path);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(asked, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return diag_errno(diags, 601, NULL, "start a process for", path);
    }
    read_all(ends[0], text);
    close(ends[0]);
    if (text->length > MOST_TEXT) kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return judge(path, diags, text, status);
}

int policy_plugin_open(struct arena *arena, struct diags *diags, const char *path, int plan_ngpus,
                       struct policy_plugin **out, struct constraints **mesh) {
    struct policy_plugin *plugin = *out = ARENA_NEW(arena, struct policy_plugin);
    char *library = realpath(path, NULL); /* a name without a slash would be searched for elsewhere */
    if (!library) return diag_errno(diags, 601, NULL, "open", path);
    *plugin = (struct policy_plugin){arena_strdup(arena, path), arena_strdup(arena, library), plan_ngpus, NULL};
    free(library);
    struct strbuf text = {.arena = arena};
    if (ask(plugin, diags, &text) < 0) return -1;
    return rules_parse(arena, diags, plugin->path, strbuf_text(&text), text.length, mesh);
}

static enum rankc_policy_kind kind_of(const struct tensor *tensor) {
    switch (tensor->kind) {
    case TENSOR_INPUT: return RANKC_POLICY_INPUT;
    case TENSOR_WEIGHT: return RANKC_POLICY_WEIGHT;
    case TENSOR_CONST: return RANKC_POLICY_CONSTANT;
    default: return RANKC_POLICY_VALUE;
    }
}

static const struct rankc_policy_tensor *tensors_of(const struct graph *graph) {
    struct rankc_policy_tensor *tensors = ARENA_ARRAY(graph->arena, struct rankc_policy_tensor, graph->tensors.n + 1);
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor) {
        tensors[t] = (struct rankc_policy_tensor){.name = tensor->name,
                                                  .dtype = rt_dtypes[tensor->dtype].name,
                                                  .kind = kind_of(tensor),
                                                  .ndim = tensor->ndim,
                                                  .dims = tensor->dims};
    }
    return tensors;
}

static double flops_of(const struct graph *graph, const struct node *node) {
    struct dims dims;
    return dims_bind(graph->arena, graph, node, &dims, NULL) < 0 ? 0 : dims_flops(&dims, node->op->flops);
}

static const struct rankc_policy_node *nodes_of(const struct graph *graph, int *n) {
    struct rankc_policy_node *nodes = ARENA_ARRAY(graph->arena, struct rankc_policy_node, graph->order.n + 1);
    for (*n = 0; *n < graph->order.n; ++*n) {
        const struct node *node = &graph->nodes.at[graph->order.at[*n]];
        if (node->phase != PHASE_FORWARD) break; /* the first of the order; what follows them is divided likewise */
        nodes[*n] = (struct rankc_policy_node){.name = node->name,
                                               .op = node->op->name,
                                               .flops = flops_of(graph, node),
                                               .ninputs = node->ninputs,
                                               .noutputs = node->noutputs,
                                               .inputs = node->inputs,
                                               .outputs = node->outputs};
    }
    return nodes;
}

int policy_plugin_rules(const struct policy_plugin *plugin, const struct graph *whole, struct diags *diags,
                        struct constraints **out) {
    const struct graph *graph = graph_typical(whole, whole->arena);
    struct rankc_policy_axis *axes = ARENA_ARRAY(graph->arena, struct rankc_policy_axis, RT_MAX_AXES);
    struct rankc_policy_graph shown = {.ntensors = graph->tensors.n,
                                       .tensors = tensors_of(graph),
                                       .trains = graph->train,
                                       .naxes = graph->mesh.naxes,
                                       .axes = axes};
    const struct policy_plugin asked = {plugin->path, plugin->library, plugin->plan_ngpus, &shown};
    struct strbuf text = {.arena = graph->arena};
    shown.nodes = nodes_of(graph, &shown.nnodes);
    for (int a = 0; a < graph->mesh.naxes; a++)
        axes[a] = (struct rankc_policy_axis){graph->mesh.axis[a].name, graph->mesh.axis[a].size};
    if (ask(&asked, diags, &text) < 0 ||
        rules_parse(graph->arena, diags, plugin->path, strbuf_text(&text), text.length, out) < 0)
        return -1;
    if ((*out)->mesh.naxes) return refuse(diags, plugin->path, "a rule is a mesh: rankc_policy_mesh gives the mesh");
    return 0;
}
