/* The thread that listens to rank 0 of a generation. */
#include "frontend/cli/generate_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/thread/quiet.h"

struct listener {
    struct cli *cli;
    int socket, wake[2]; /* wake: a pipe that is closed when the ranks have ended */
    pthread_t thread;
    listen_step *step;
    void *context;
    bool answers;
    /* the thread's own until it has ended: */
    char *line;
    size_t room;
    int64_t *ids;
    bool *ends;
    int64_t rows, most; /* of a step, and those that there is room for */
    int64_t *all;       /* what was reported, step by step */
    size_t nall, all_room;
    struct reported reported;
};

/* The numbers of a line. False: no memory. */
static bool read_ids(struct listener *listener) {
    const char *at = listener->line;
    listener->rows = 0;
    for (char *end;; at = end) {
        const long long id = strtoll(at, &end, 10);
        if (end == at) return true;
        if (listener->rows == listener->most) {
            listener->most = listener->most * 2 + 16;
            int64_t *ids = realloc(listener->ids, (size_t)listener->most * sizeof *ids);
            bool *ends = realloc(listener->ends, (size_t)listener->most * sizeof *ends);
            if (ids) listener->ids = ids;
            if (ends) listener->ends = ends;
            if (!ids || !ends) return false;
        }
        listener->ids[listener->rows++] = id;
    }
}

static bool keep(struct listener *listener) {
    const size_t needed = listener->nall + (size_t)listener->rows;
    if (needed > listener->all_room) {
        int64_t *all = realloc(listener->all, needed * 2 * sizeof *all);
        if (!all) return false;
        listener->all = all, listener->all_room = needed * 2;
    }
    memcpy(listener->all + listener->nall, listener->ids, (size_t)listener->rows * sizeof *listener->ids);
    listener->nall = needed;
    return true;
}

static bool answer(const struct listener *listener, FILE *to) {
    for (int64_t i = 0; i < listener->rows; i++) fprintf(to, "%s%d", i ? " " : "", listener->ends[i]);
    fputc('\n', to);
    return fflush(to) == 0;
}

static bool take_line(struct listener *listener, FILE *to) {
    struct reported *reported = &listener->reported;
    long long prompt_tokens, tokens;
    if (sscanf(listener->line, "done %lld %lf %lld %lf", &prompt_tokens, &reported->prompt_ms, &tokens,
               &reported->ms) == 4) {
        reported->prompt_tokens = prompt_tokens, reported->tokens = tokens;
        return reported->done = true;
    }
    if (!read_ids(listener) || !keep(listener)) return false;
    memset(listener->ends, 0, (size_t)listener->rows * sizeof *listener->ends);
    listener->step(listener->context, listener->rows, listener->ids, listener->ends);
    return !listener->answers || answer(listener, to);
}

/* Waits for rank 0 to connect: its descriptor, -1: the ranks have ended. */
static int await(const struct listener *listener) {
    struct pollfd at[] = {{.fd = listener->socket, .events = POLLIN}, {.fd = listener->wake[0], .events = POLLIN}};
    while (poll(at, 2, -1) < 0 && errno == EINTR) continue;
    return at[0].revents ? accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC) : -1;
}

static void *listen_to_rank(void *argument) {
    struct listener *listener = argument;
    const int from = await(listener), to = from < 0 ? -1 : dup(from);
    FILE *in = from < 0 ? NULL : fdopen(from, "r"), *out = to < 0 ? NULL : fdopen(to, "w");
    while (in && out && getline(&listener->line, &listener->room, in) > 0 && take_line(listener, out)) continue;
    if (in) fclose(in);
    if (out) fclose(out);
    return NULL;
}

int listener_open(struct listener **out, const char *path, listen_step *step, bool answers, void *context,
                  struct cli *cli) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct listener *listener = *out = ARENA_NEW(cli->arena, struct listener);
    *listener = (struct listener){.cli = cli, .step = step, .context = context, .answers = answers, .wake = {-1, -1}};
    listener->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) < sizeof address.sun_path) memcpy(address.sun_path, path, strlen(path) + 1);
    if (listener->socket >= 0 && bind(listener->socket, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(listener->socket, 1) == 0 && pipe2(listener->wake, O_CLOEXEC) == 0 &&
        !rt_thread_start_quiet(&listener->thread, listen_to_rank, listener))
        return 0;
    diag_errno(cli->diags, 611, NULL, "create", path);
    for (int i = 0; i < 2; i++)
        if (listener->wake[i] >= 0) close(listener->wake[i]);
    if (listener->socket >= 0) close(listener->socket);
    *out = NULL;
    return -1;
}

/* The rows of what was reported step by step. */
static void collect(const struct listener *listener, struct token_rows *rows) {
    struct arena *arena = listener->cli->arena;
    for (int64_t row = 0; row < listener->rows; row++) {
        struct token_row ids = {0};
        for (size_t i = (size_t)row; i < listener->nall; i += (size_t)listener->rows)
            if (listener->all[i] >= 0) VEC_PUSH(arena, &ids.ids, listener->all[i]);
        VEC_PUSH(arena, &rows->all, ids);
    }
}

void listener_close(struct listener *listener, struct reported *reported) {
    if (!listener) return;
    close(listener->wake[1]);
    pthread_join(listener->thread, NULL);
    close(listener->wake[0]);
    close(listener->socket);
    *reported = listener->reported;
    collect(listener, &reported->rows);
    free(listener->line);
    free(listener->ids);
    free(listener->ends);
    free(listener->all);
}
