/* Graphs of segments that hold while caches grow, for device.cu.
 *
 * Note [Growing sizes]
 * From one step of decoding to the next only the number of rows that caches have differs (`next` of struct rt_size). A
 * graph is captured for a bucket of lengths, which ends at a power of two, and finds the number in the GPU's memory:
 *
 * - Extents are copied there before each segment. Generated kernels read those that grow (rt_grown).
 * - Other kernels whose arguments depend on the number read all of them from memory (rt_launch_movable). The first
 *   kernel of the graph computes the words that differ from step to step, as base + slope * rows.
 *
 * Which words these are is measured. The segment is captured, and not executed, for the largest length of the bucket,
 * for one less and for the smallest. The arguments of all launches and of all calls of libraries and communicators are
 * noted and compared: words that differ must lie on a line, and belong to kernels that can read them from memory. Where
 * that fails, as for a product with as many columns as the cache has rows, the segment's kernels are launched one by
 * one.
 *
 * Grids are those of the largest length, and kernels loop over what there is. What is divided among thread blocks by
 * length counts the power of two above it (rt_flash_pieces), so it is the same in a bucket. */
#ifndef RT_CUDA_GROW_CUH
#define RT_CUDA_GROW_CUH

#include "rank.cuh"

enum { RT_LEAST_BUCKET = 64 }; /* rows of the first bucket */
enum { RT_MEASURES = 3 };

/* What is launched or called, and where its bytes begin. */
struct rt_noted {
    const void *what;
    bool movable;
    size_t at, bytes;
};

struct rt_notes {
    rt_noted *all;
    unsigned char *bytes;
    size_t n, nbytes, room, room_bytes;
};

/* A word of arguments, as base + slope * (rows - those of the largest length); `at` counts words. */
struct rt_moving_word {
    uint32_t at, base, slope;
};

struct rt_growth {
    rt_notes notes[RT_MEASURES];
    int measure; /* the current one; RT_MEASURES: none, the segment is captured */
    size_t next; /* launch or call of the capture */
    struct {
        rt_moving_word *all;
        size_t n, room;
    } words;
    unsigned char *arguments; /* of all launches whose arguments move */
    size_t bytes, room;
    size_t *place;        /* of each launch: where its arguments begin there; SIZE_MAX: they do not move */
    unsigned char *block; /* in the GPU's memory: the arguments, then the words */
    int64_t *extents;     /* of the length that is measured */
    int64_t most;         /* the largest length: rows before the step */
    bool failed;          /* memory is exhausted */
};

/* The rows before a step that ends at `end` rows, if it adds as many as the current one. */
static inline int64_t rt_rows_before(const struct rt *rt, int s, int64_t end) {
    return end - (rt->extents[rt->program->sizes[s].next - 1] - rt->extents[s]);
}

/* The bucket of the current step: rows before the largest and the smallest one in it. */
struct rt_bucket {
    int64_t most, least;
};
static inline rt_bucket rt_bucket_of(const struct rt *rt, int s) {
    const rt_size *size = &rt->program->sizes[s];
    int64_t end = RT_LEAST_BUCKET;
    while (end < rt->extents[size->next - 1]) end *= 2;
    const int64_t most = rt_rows_before(rt, s, end < size->most ? end : size->most);
    const int64_t least = end > RT_LEAST_BUCKET ? rt_rows_before(rt, s, end / 2 + 1) : 1;
    return {most, least < 1 ? 1 : least < most ? least : most};
}

template <class T> static bool grow_to(T **array, size_t n, size_t *room) {
    if (n <= *room) return true;
    T *larger = (T *)realloc(*array, 2 * n * sizeof(T));
    if (!larger) return false;
    *array = larger;
    *room = 2 * n;
    return true;
}

/* `note` of struct rt_cuda. */
static const void *note_launch(struct rt *rt, const void *what, bool movable, const void *bytes, size_t n) {
    rt_growth *growth = rt_cuda_of(rt)->own->growth;
    if (growth->measure == RT_MEASURES) {
        const size_t place = growth->place[growth->next++];
        return place == SIZE_MAX ? NULL : growth->block + place;
    }
    rt_notes *notes = &growth->notes[growth->measure];
    if (!grow_to(&notes->all, notes->n + 1, &notes->room) ||
        !grow_to(&notes->bytes, notes->nbytes + n, &notes->room_bytes)) {
        growth->failed = true;
        return NULL;
    }
    notes->all[notes->n++] = {what, movable, notes->nbytes, n};
    memcpy(notes->bytes + notes->nbytes, bytes, n);
    notes->nbytes += n;
    return NULL;
}

/* Calls work(), none of whose launches are noted. */
template <class F> static int rt_unnoted(struct rt *rt, F work) {
    rt_cuda *cuda = rt_cuda_of(rt);
    const auto note = cuda->note;
    cuda->note = NULL;
    const int status = work();
    cuda->note = note;
    return status;
}

static void note_call(const rt_cuda_call *call) {
    rt_take_note(call->rt, (const void *)call->perform, false, call->comm, call->dst, call->src, call->count,
                 call->dtype, call->reduce, call->peer, call->kind);
    for (int r = 0; r < call->comm->size; r++)
        rt_take_note(call->rt, NULL, false, call->receive ? call->receive[r] : 0, call->send ? call->send[r] : 0);
}

static uint32_t word_of(const rt_growth *growth, int measure, size_t at, size_t bytes) {
    uint32_t word = 0;
    memcpy(&word, growth->notes[measure].bytes + at, bytes < sizeof word ? bytes : sizeof word);
    return word;
}

/* Adds the moving words of launch or call i, whose arguments are to be at word `to`. range: lengths from the last
 * measure to the first. False: there is no line, or nothing that can be moved. */
static bool find_words(rt_growth *growth, size_t i, int64_t range, uint32_t to) {
    const rt_noted *noted = &growth->notes[0].all[i];
    for (size_t b = 0; b < noted->bytes; b += sizeof(uint32_t)) {
        uint32_t word[RT_MEASURES];
        for (int m = 0; m < RT_MEASURES; m++) word[m] = word_of(growth, m, noted->at + b, noted->bytes - b);
        const uint32_t slope = word[0] - word[1];
        if (word[0] - slope * (uint32_t)range != word[2]) return false;
        if (!slope) continue;
        growth->failed = growth->failed || !grow_to(&growth->words.all, growth->words.n + 1, &growth->words.room);
        if (!noted->movable || growth->failed) return false;
        growth->words.all[growth->words.n++] = {to + (uint32_t)(b / sizeof(uint32_t)), word[0], slope};
    }
    return true;
}

/* The same launches and calls in all measures. */
static bool are_alike(const rt_growth *growth) {
    for (int m = 1; m < RT_MEASURES; m++) {
        if (growth->notes[m].n != growth->notes[0].n) return false;
        for (size_t i = 0; i < growth->notes[0].n; i++) {
            const rt_noted *a = &growth->notes[0].all[i], *b = &growth->notes[m].all[i];
            if (a->what != b->what || a->at != b->at || a->bytes != b->bytes) return false;
        }
    }
    return true;
}

/* Places the arguments of launches that have moving words. False: no graph holds for the lengths. */
static bool place_arguments(rt_growth *growth, int64_t range) {
    if (!are_alike(growth)) return false;
    growth->place = (size_t *)malloc((growth->notes[0].n + 1) * sizeof *growth->place);
    if (!growth->place) growth->failed = true;
    for (size_t i = 0; i < growth->notes[0].n && !growth->failed; i++) {
        const rt_noted *noted = &growth->notes[0].all[i];
        const size_t words = growth->words.n, end = growth->bytes + rt_behind_scores((int64_t)noted->bytes);
        growth->place[i] = SIZE_MAX;
        if (!find_words(growth, i, range, (uint32_t)(growth->bytes / sizeof(uint32_t)))) return false;
        if (growth->words.n == words) continue;
        growth->failed = !grow_to(&growth->arguments, end, &growth->room);
        if (growth->failed) return false;
        memcpy(growth->arguments + growth->bytes, growth->notes[0].bytes + noted->at, noted->bytes);
        growth->place[i] = growth->bytes;
        growth->bytes = end;
    }
    return !growth->failed;
}

/* Copies arguments and words to the GPU. */
static int store_arguments(struct rt *rt, rt_growth *growth) {
    const size_t words = growth->words.n * sizeof *growth->words.all;
    const cudaStream_t stream = rt_cuda_of(rt)->stream;
    if (!words) return RT_OK;
    RT_CUDA_TRY(rt, cudaMalloc((void **)&growth->block, growth->bytes + words));
    RT_CUDA_TRY(rt, cudaMemcpyAsync(growth->block, growth->arguments, growth->bytes, cudaMemcpyHostToDevice, stream));
    RT_CUDA_TRY(
        rt, cudaMemcpyAsync(growth->block + growth->bytes, growth->words.all, words, cudaMemcpyHostToDevice, stream));
    return RT_OK;
}

/* The first kernel of the graph: computes the words for the step's rows. */
static int move_words(struct rt *rt, const rt_growth *growth) {
    const int64_t most = growth->most;
    uint32_t *const to = (uint32_t *)growth->block;
    const rt_moving_word *const words = (const rt_moving_word *)(growth->block + growth->bytes);
    const int64_t *const rows = rt_extent_at(rt, rt_growing_size(rt->program));
    return rt_points(rt, (int64_t)growth->words.n, [=] __device__(int64_t i) {
        to[words[i].at] = words[i].base + words[i].slope * (uint32_t)(*rows - most);
    });
}

static void free_growth(rt_growth *growth) {
    for (rt_notes &notes : growth->notes) {
        free(notes.all);
        free(notes.bytes);
    }
    free(growth->words.all);
    free(growth->arguments);
    free(growth->place);
    free(growth->extents);
}
#endif
