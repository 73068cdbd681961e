/* rankc doctor: checks whether this machine has what compiling and running need. */
#include "frontend/cli/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/cli/doctor/gpu_driver.h"
#include "frontend/driver/program/build_program.h"
#include "frontend/driver/program/subprocess.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/text/json.h"

struct findings {
    VEC(struct finding) all;
};

static const char *const verdicts[] = {[FOUND] = "ok", [LIMITED] = "limited", [ABSENT] = "absent", [FAILED] = "failed"};

/* ---- programs ---- */

const char *doctor_find_program(const char *name, struct arena *arena) {
    const char *path = getenv("PATH");
    if (strchr(name, '/')) return access(name, X_OK) ? NULL : name;
    for (size_t length; path && *path; path += length + (path[length] == ':')) {
        struct stat info;
        length = strcspn(path, ":");
        const char *file = arena_printf(arena, "%.*s/%s", (int)length, path, name);
        if (!access(file, X_OK) && !stat(file, &info) && S_ISREG(info.st_mode)) return file;
    }
    return NULL;
}

/* The first line that `program --version` prints; NULL if it does not run. */
static const char *version_of(const char *program, struct arena *arena) {
    const char *argv[] = {program, "--version", NULL};
    struct strbuf said;
    int status;
    strbuf_init(&said, arena);
    if (subprocess_run(argv, NULL, NULL, &said, &status) || !WIFEXITED(status) || WEXITSTATUS(status)) return NULL;
    const char *text = strbuf_text(&said);
    return str_escape(arena, text, strcspn(text, "\n"), 100);
}

static const char *with_version(const char *path, struct arena *arena) {
    const char *version = path ? version_of(path, arena) : NULL;
    return version ? arena_printf(arena, "%s: %s", path, version) : path;
}

static struct finding find_make(struct arena *arena) {
    const char *make = doctor_find_program("make", arena);
    return (struct finding){make ? FOUND : FAILED, "make", with_version(make, arena),
                            make ? NULL : "install make: it builds compiled programs"};
}

/* The compiler that make would run: the first word of $CC, else cc. */
static struct finding find_compiler(struct arena *arena) {
    const char *set = getenv("CC"),
               *word = set && *set ? arena_printf(arena, "%.*s", (int)strcspn(set, " "), set) : "cc";
    const char *compiler = doctor_find_program(word, arena);
    return (struct finding){compiler ? FOUND : FAILED, "C compiler", with_version(compiler, arena),
                            compiler ? NULL : "install gcc or clang, or set CC: it builds compiled programs"};
}

static struct finding find_pkg_config(struct arena *arena) {
    const char *program = doctor_find_program("pkg-config", arena);
    return (struct finding){program ? FOUND : ABSENT, "pkg-config", program,
                            program ? NULL
                                    : "needed only to embed a model in a C program, or to build with make alone"};
}

/* ---- libraries ---- */

static struct finding find_runtime(struct arena *arena) {
    struct build_runtime runtime = build_runtime(arena);
    if (runtime.library) {
        char *path = realpath(runtime.library, NULL);
        const char *found = arena_strdup(arena, path ? path : runtime.library);
        free(path);
        return (struct finding){FOUND, "runtime", found, NULL};
    }
    return (struct finding){LIMITED, "runtime", NULL,
                            "not installed beside this rankc; pkg-config is asked for rankc-rt"};
}

static struct finding find_products(struct arena *arena) {
    (void)arena;
    if (strstr(RANKC_RT_LIBS, "-ldnnl"))
        return (struct finding){FOUND, "oneDNN", "used for matrix products and convolutions", NULL};
    return (struct finding){LIMITED, "oneDNN", NULL, "rankc was built without it: matrix products use plain C kernels"};
}

static struct finding find_memfd(struct arena *arena) {
    int fd = memfd_create("rankc", MFD_CLOEXEC);
    if (fd < 0)
        return (struct finding){FAILED, "shared memory", arena_strdup(arena, strerror(errno)),
                                "ranks that are processes need memfd_create"};
    close(fd);
    return (struct finding){FOUND, "shared memory", "memfd", NULL};
}

/* ---- several hosts ---- */

static struct finding find_mpi(struct arena *arena) {
    const char *path = doctor_find_program("mpirun", arena);
    if (!path) path = doctor_find_program("mpiexec", arena);
    return (struct finding){path ? FOUND : ABSENT, "MPI", with_version(path, arena),
                            "starts ranks on several hosts (--comm mpi)"};
}

/* ---- GPUs: what --target cuda needs ---- */

static struct finding find_gpu(struct arena *arena) {
    static const char *const absent[] = {[GPU_NO_DRIVER] = "no driver; programs of --target cuda need one",
                                         [GPU_NONE] = "the driver finds no GPU; programs of --target cuda need one"};
    struct gpu gpu;
    const enum gpu_found found = gpu_driver_ask(&gpu, arena);
    if (found != GPU_FOUND) return (struct finding){ABSENT, "GPU", NULL, absent[found]};
    const char *architecture = gpu.major ? arena_printf(arena, " (sm_%d%d)", gpu.major, gpu.minor) : "";
    const char *machine = machine_of_gpu(gpu.name, gpu.memory);
    const char *text = arena_printf(arena, "%d x %s%s, driver for CUDA %d.%d%s%s", gpu.count, gpu.name, architecture,
                                    gpu.version / 1000, gpu.version % 1000 / 10, machine ? ", --machine " : "",
                                    machine ? machine : "");
    return (struct finding){FOUND, "GPU", text, "runs programs of --target cuda"};
}

static struct finding find_nvcc(struct arena *arena) {
    const char *path = doctor_find_program("nvcc", arena);
    if (!path) path = doctor_find_program("/usr/local/cuda/bin/nvcc", arena);
    return (struct finding){path ? FOUND : ABSENT, "nvcc", path, "builds programs of --target cuda"};
}

static struct finding find_nccl(struct arena *arena) {
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    int (*get_version)(int *) = library ? (int (*)(int *))dlsym(library, "ncclGetVersion") : NULL;
    int version = 0;
    const char *text = NULL;
    if (get_version && get_version(&version) == 0)
        text = arena_printf(arena, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    if (library) dlclose(library);
    return (struct finding){text ? FOUND : ABSENT, "NCCL", text, "needed for ranks on several GPUs"};
}

/* cudnnGetVersion returns 10000 x major + 100 x minor + patch, in the encoding of NCCL. */
static struct finding find_cudnn(struct arena *arena) {
    void *library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
    size_t (*get_version)(void) = library ? (size_t(*)(void))dlsym(library, "cudnnGetVersion") : NULL;
    const size_t version = get_version ? get_version() : 0;
    const char *text = NULL;
    if (version) text = arena_printf(arena, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    if (library) dlclose(library);
    return (struct finding){text ? FOUND : ABSENT, "cuDNN", text,
                            text ? NULL : "without it, convolutions on GPUs use rankc's own kernels"};
}

/* ---- the examination ---- */

static struct finding (*const examinations[])(struct arena *arena) = {
    doctor_processor, doctor_cores, doctor_memory, find_make, find_compiler, find_pkg_config, find_runtime,
    find_products,    find_memfd,   find_mpi,      find_gpu,  find_nvcc,     find_nccl,       find_cudnn};

static void examine(struct findings *findings, struct cli *cli) {
    bool failed = false;
    for (size_t i = 0; i < sizeof examinations / sizeof *examinations; i++) {
        struct finding finding = examinations[i](cli->arena);
        failed |= finding.verdict == FAILED;
        VEC_PUSH(cli->arena, &findings->all, finding);
    }
    if (!failed) VEC_PUSH(cli->arena, &findings->all, doctor_probe(cli));
}

static int print_json(const struct findings *findings, struct cli *cli) {
    struct rt_json_writer *writer = own_json_writer(cli->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_open(writer, "findings", '[', RT_JSON_LINES);
    for (int i = 0; i < findings->all.n; i++) {
        const struct finding *item = &findings->all.at[i];
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "what", item->what);
        rt_json_key_text(writer, "verdict", verdicts[item->verdict]);
        rt_json_key_text(writer, "found", item->found);
        rt_json_key_text(writer, "hint", item->hint);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    return cli_print_json(cli, writer);
}

/* `quiet`: only what is wrong. */
static void print_text(const struct findings *findings, bool quiet) {
    for (int i = 0; i < findings->all.n; i++) {
        const struct finding *item = &findings->all.at[i];
        if (quiet && item->verdict != FAILED) continue;
        printf("%-17s %-8s %s%s%s\n", item->what, verdicts[item->verdict], item->found ? item->found : "",
               item->found && item->hint ? "; " : "", item->hint ? item->hint : "");
    }
}

/* One error for each FAILED finding, except the probe, which has reported its own. */
static int report_failures(struct cli *cli, const struct findings *findings) {
    if (cli->diags->errors) return -1;
    for (int i = 0; i < findings->all.n; i++)
        if (findings->all.at[i].verdict == FAILED)
            diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "%s: compiled programs cannot run here",
                       findings->all.at[i].what);
    return cli->diags->errors ? -1 : 0;
}

int cli_doctor(struct cli *cli) {
    struct findings findings = {0};
    int status = 0;
    examine(&findings, cli);
    if (cli->options->json)
        status = print_json(&findings, cli);
    else
        print_text(&findings, cli->options->quiet);
    return report_failures(cli, &findings) ? -1 : status;
}
