/* rankc doctor: what this machine has of what compiling and running need. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/units.h"
#include "runtime/base/json.h"

struct finding {
    const char *what, *found; /* found: NULL if missing */
    const char *why;          /* what a missing one is needed for */
};

struct findings {
    VEC(struct finding) all;
};

/* The program's path, as execvp would find it. */
static const char *find_program(const char *name, struct arena *arena) {
    const char *path = getenv("PATH");
    for (size_t length; path && *path; path += length + (path[length] == ':')) {
        struct stat info;
        length = strcspn(path, ":");
        const char *file = arena_printf(arena, "%.*s/%s", (int)length, path, name);
        if (!access(file, X_OK) && !stat(file, &info) && S_ISREG(info.st_mode)) return file;
    }
    return NULL;
}

static const char *count_cores(struct arena *arena) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores)) return NULL;
    return arena_printf(arena, "%d", CPU_COUNT(&cores));
}

static const char *measure_memory(struct arena *arena) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? arena_strdup(arena, units_bytes((int64_t)pages * size).text) : NULL;
}

static const char *try_memfd(void) {
    int fd = memfd_create("rankc", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    close(fd);
    return "yes";
}

static void examine(struct findings *findings, struct arena *arena) {
    const struct finding all[] = {
        {"make", find_program("make", arena), "to build compiled programs"},
        {"C compiler (cc)", find_program("cc", arena), "to build compiled programs"},
        {"cores", count_cores(arena), "to choose the number of threads"},
        {"memory", measure_memory(arena), "to know its size"},
        {"shared memory (memfd)", try_memfd(), "for ranks that are processes"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) VEC_PUSH(arena, &findings->all, all[i]);
}

static int print_json(const struct findings *findings, struct cli *cli) {
    struct rt_json_writer *w = own_json_writer(cli->arena);
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key(w, "format"), rt_json_put_int(w, 1);
    rt_json_key(w, "found");
    rt_json_open(w, '{', RT_JSON_LINES);
    for (int i = 0; i < findings->all.n; i++) {
        rt_json_key(w, findings->all.at[i].what);
        if (findings->all.at[i].found)
            rt_json_put_text(w, findings->all.at[i].found);
        else
            rt_json_put_null(w);
    }
    rt_json_close(w, '}');
    rt_json_close(w, '}');
    return cli_print_json(cli, w);
}

static void print_text(const struct findings *findings) {
    for (int i = 0; i < findings->all.n; i++) {
        const struct finding *item = &findings->all.at[i];
        printf("%-24s%s\n", item->what, item->found ? item->found : "missing");
    }
}

int cli_doctor(struct cli *cli) {
    struct findings findings = {0};
    int status = 0;
    examine(&findings, cli->arena);
    if (cli->options->json)
        status = print_json(&findings, cli);
    else
        print_text(&findings);
    for (int i = 0; i < findings.all.n; i++)
        if (!findings.all.at[i].found)
            status = diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "%s is missing; it is needed %s",
                                findings.all.at[i].what, findings.all.at[i].why);
    return status;
}
