/* rankc doctor: checks whether this machine has what compiling and running need. */
#include "frontend/cli/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/cli/doctor/gpu_driver.h"
#include "frontend/cli/format_bytes.h"
#include "frontend/driver/program/build_program.h"
#include "frontend/driver/program/subprocess.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/text/json.h"
#include "frontend/driver/output/temporary.h"
#include "runtime/base/thread/clock.h"
#include "runtime/base/npy.h"
#include "runtime/base/processor.h"
#include "runtime/launch.h"

/* y = x w, where each of two ranks computes one column of y. */
static const char probe[] = "rankc-ir 1\n"
                            "graph \"probe\" level=IMPORTED\n"
                            "input %0 \"x\" f32[2,3]\n"
                            "const %1 \"w\" f32[3,2] = [1, 2, 4, 8, 16, 32]\n"
                            "%2 \"y\" = MatMul(%0, %1) node=\"product\"\n"
                            "output %2 \"y\"\n";
static const float probe_x[] = {1, 1, 1, 1, 0, -1}, probe_y[] = {21, 42, -15, -30};

static int fail(struct cli *cli, const char *text) {
    return diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "%s", text);
}

static int write_probe(struct cli *cli, const char *work) {
    const struct rt_piece piece = {probe, strlen(probe)};
    struct rt_reason why;
    if (rt_file_write(arena_printf(cli->arena, "%s/probe.rir", work), &piece, 1, &why) &&
        rt_npy_write(arena_printf(cli->arena, "%s/x.npy", work), RT_F32, 2, (int64_t[]){2, 3}, probe_x, &why))
        return 0;
    return fail(cli, why.text);
}

static int compile_probe(struct cli *cli, const char *work) {
    struct driver_result result;
    struct options options;
    options_start(&options, VERB_COMPILE, arena_printf(cli->arena, "%s/probe.rir", work), cli->arena, cli->diags);
    options.output = work;
    options.pas.word = OPT_POLICY_TP;
    mesh_add_axis(&options.decisions.mesh, "tensor", &(struct rt_mesh_axis){.size = 2});
    if (options_finish(&options, cli->arena, cli->diags)) return -1;
    return driver_compile(&options, cli->arena, cli->diags, &result);
}

static int run_probe(struct cli *cli, const char *work) {
    const bool json = cli->options->json;
    const char *words[] = {
        "--input", arena_printf(cli->arena, "x=%s/x.npy", work), "--output-dir", work, json ? "--json" : NULL, NULL};
    const struct rt_launch launch = {.program = arena_printf(cli->arena, "%s/probe/_/build/run", work),
                                     .arguments = words,
                                     .ranks = 2,
                                     .json = json,
                                     .no_results = true};
    return rt_launch(&launch) ? fail(cli, "a compiled program does not run") : 0;
}

static int check_probe(struct cli *cli, const char *work) {
    struct rt_tensor y = {0};
    struct rt_reason why;
    if (!rt_npy_read(&y, arena_printf(cli->arena, "%s/y.npy", work), &why)) return fail(cli, why.text);
    bool right = y.dtype == RT_F32 && y.count == 4 && !memcmp(y.data, probe_y, sizeof probe_y);
    rt_tensor_free(&y);
    return right ? 0 : fail(cli, "a compiled program computes a wrong matrix product");
}

/* Compiles a matrix product for two ranks, builds and runs it, and checks the result. Diagnostics go to
 * cli->diags. */
static struct finding doctor_probe(struct cli *cli) {
    const char *work = temporary_make("doctor", cli->arena, cli->diags);
    const int64_t start = rt_now_ms();
    bool works = work && !write_probe(cli, work) && !compile_probe(cli, work) && !run_probe(cli, work) &&
                 !check_probe(cli, work);
    if (work) temporary_remove(work);
    cli_tell(cli, "a product on two ranks was compiled and run in %s, in %.1f s", work ? work : "no directory",
             (double)(rt_now_ms() - start) / 1000);
    if (works) return (struct finding){FOUND, "compiled program", "built, two ranks ran", NULL};
    return (struct finding){FAILED, "compiled program", NULL, "see the errors below"};
}

struct feature {
    const char *name;
    bool (*supported)(void);
};

#if defined(__x86_64__) || defined(__i386__)
#define FEATURE(id, name)                                                                                              \
    static bool has_##id(void) {                                                                                       \
        return __builtin_cpu_supports(name);                                                                           \
    }
FEATURE(avx2, "avx2")
FEATURE(fma, "fma")
FEATURE(avx512f, "avx512f")
#undef FEATURE
/* Features by which runtime/kernels choose variants of kernels when a program starts. */
static const struct feature features[] = {{"avx2", has_avx2}, {"fma", has_fma}, {"avx512f", has_avx512f}};
#else
static const struct feature features[] = {{NULL, NULL}};
#endif

/* Further features that oneDNN uses, by their names in /proc/cpuinfo. */
static const char *const library_flags[] = {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16",
                                            "amx_int8",    "asimd",       "sve"};

static bool read_line(const char *path, const char *start, char *line, size_t bytes) {
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, (int)bytes, file)) found = !strncmp(line, start, strlen(start));
    if (file) fclose(file);
    return found;
}

static bool has_word(const char *line, const char *word) {
    size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)); at += length)
        if (at > line && (at[-1] == ' ' || at[-1] == '\t') && (at[length] == ' ' || at[length] == '\n')) return true;
    return false;
}

/* How kernels multiply bf16, as they choose it (runtime/kernels/gemm_bf16.c). */
static const char *bf16_products(bool tiles) {
    if (rt_processor_has_pairs()) return "bf16 is multiplied in pairs";
    return tiles ? "bf16 is multiplied by AMX where weights are not packed, else as f32" : "bf16 is multiplied as f32";
}

/* Read from sched_getaffinity, CPUID, /proc and the control groups (cgroups) of this process. */
static struct finding doctor_processor(struct arena *arena) {
    char line[8192] = "";
    struct strbuf text = {.arena = arena};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].name && features[i].supported())
            strbuf_printf(&text, "%s%s", text.length ? " " : "", features[i].name);
    bool vectors = text.length;
    bool tiles = false;
    if (read_line("/proc/cpuinfo", "flags", line, sizeof line) ||
        read_line("/proc/cpuinfo", "Features", line, sizeof line))
        for (size_t i = 0; i < sizeof library_flags / sizeof *library_flags; i++)
            if (has_word(line, library_flags[i])) {
                tiles = tiles || !strcmp(library_flags[i], "amx_bf16");
                strbuf_printf(&text, "%s%s", text.length ? " " : "", library_flags[i]);
            }
    if (vectors) strbuf_printf(&text, "; %s", bf16_products(tiles));
    if (vectors) return (struct finding){FOUND, "processor", strbuf_text(&text), NULL};
    return (struct finding){LIMITED, "processor", text.length ? strbuf_text(&text) : "no known vector instructions",
                            "kernels use portable code"};
}

/* Finds the control group of this process: for a controller of cgroups version 1, or "" for version 2, whose line in
 * /proc/self/cgroup is "0::PATH". */
static bool find_group(const char *controller, char *path, size_t bytes) {
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        found = !strcmp(list + 1, controller) && strlen(group) < bytes;
        if (found) strcpy(path, group);
    }
    if (file) fclose(file);
    return found;
}

/* Calls `use` with the first line of `file` in the group and all groups above it. */
static void read_groups(const char *controller, const char *file, void (*use)(const char *line, void *state),
                        void *state) {
    char group[2048], path[4096], line[128];
    if (!find_group(controller, group, sizeof group)) return;
    for (char *end = group + strlen(group);; end = strrchr(group, '/')) {
        if (end) *end = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s%s/%s", *controller ? "/" : "", controller, group, file);
        if (read_line(path, "", line, sizeof line)) use(line, state);
        if (!end || !*group) return;
    }
}

static void take_least(const char *line, void *state) {
    int64_t *least = state, value;
    if (sscanf(line, "%" SCNd64, &value) == 1 && value > 0 && value < *least) *least = value;
}

/* Parses quota and period, "150000 100000", to thousandths of a core. */
static void take_quota(const char *line, void *state) {
    int64_t *least = state, quota, period;
    if (sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) == 2 && period > 0 && quota * 1000 / period < *least)
        *least = quota * 1000 / period;
}

/* The limit of the control groups in thousandths of a core; INT64_MAX: none. */
static int64_t core_quota(void) {
    int64_t least = INT64_MAX, quota = INT64_MAX, period = INT64_MAX;
    read_groups("", "cpu.max", take_quota, &least);
    read_groups("cpu", "cpu.cfs_quota_us", take_least, &quota);
    read_groups("cpu", "cpu.cfs_period_us", take_least, &period);
    if (quota < INT64_MAX / 1000 && period < INT64_MAX && quota * 1000 / period < least) least = quota * 1000 / period;
    return least;
}

static struct finding doctor_cores(struct arena *arena) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t quota = core_quota();
    if (sched_getaffinity(0, sizeof set, &set)) return (struct finding){LIMITED, "cores", strerror(errno), NULL};
    int usable = CPU_COUNT(&set);
    const char *text = arena_printf(arena, "%d of %ld", usable, online);
    if (quota >= usable * INT64_C(1000)) return (struct finding){FOUND, "cores", text, NULL};
    const char *hint = "the control group limits CPU time to less than all cores: use fewer --threads or ranks";
    text = arena_printf(arena, "%s, CPU time of %.3g", text, (double)quota / 1000);
    return (struct finding){LIMITED, "cores", text, hint};
}

static int64_t memory_limit(void) {
    struct rlimit space;
    int64_t least = INT64_MAX;
    read_groups("", "memory.max", take_least, &least);
    read_groups("memory", "memory.limit_in_bytes", take_least, &least);
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY && (int64_t)space.rlim_cur < least)
        least = (int64_t)space.rlim_cur;
    return least;
}

static struct finding doctor_memory(struct arena *arena) {
    long pages = sysconf(_SC_PHYS_PAGES), available = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    int64_t all = (int64_t)pages * size, limit = memory_limit();
    struct bytes_text total = format_bytes(all), free_now = format_bytes((int64_t)available * size);
    const char *text = arena_printf(arena, "%s, %s free", total.text, free_now.text);
    if (limit >= all) return (struct finding){FOUND, "memory", text, NULL};
    text = arena_printf(arena, "%s, limited to %s", text, format_bytes(limit).text);
    return (struct finding){LIMITED, "memory", text, "'rankc show' prints the memory of each rank"};
}

struct findings {
    VEC(struct finding) all;
};

static const char *const verdicts[] = {[FOUND] = "ok", [LIMITED] = "limited", [ABSENT] = "absent", [FAILED] = "failed"};

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
    int status;
    struct strbuf said = {.arena = arena};
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

static struct finding find_mpi(struct arena *arena) {
    const char *path = doctor_find_program("mpirun", arena);
    if (!path) path = doctor_find_program("mpiexec", arena);
    return (struct finding){path ? FOUND : ABSENT, "MPI", with_version(path, arena),
                            "starts ranks on several hosts (--comm mpi)"};
}

/* GPUs: what --target cuda needs */

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
    VEC_EACH(&findings->all, i, const struct finding *item) {
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
    VEC_EACH(&findings->all, i, const struct finding *item) {
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
