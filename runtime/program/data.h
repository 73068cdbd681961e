/* Training data: files of samples, read on demand.
 *
 * Two formats, by the file's name:
 *   X.npy                       dimension 0 counts samples; the others are the input's shape without its batch
 *                               dimension; any float type for a float input, else any integer type or bool
 *   X.bin:u16[:shift=K]         raw little-endian tokens (u8, u16, u32, i32, i64): sample i is the T tokens from
 *                               i * T + K on, T being the input's size without its batch dimension. shift=1 gives the
 *                               labels of a language model.
 *
 * An input that is the same for all samples (struct rt_port) has one tensor, of the input's shape; X.npy may have
 * several copies of it, one behind the other along dimension 0.
 *
 * The sampler gives the order of samples. Values are converted to the input's type. Files are untrusted: sizes are
 * checked at opening and after every read (Note [Files that shrink] in base/io/file_reader.h); kernels check that
 * indices are in range. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "base/number/hash.h"
#include "generated.h"

/* The order in which samples are read.
 *
 * A run reads positions 0, 1, 2 ..; every `samples` positions are an epoch, which has each sample once: in order, or in
 * a new random order. The sample at a position does not depend on earlier positions, so a run can be resumed at any
 * step. Scale units share the positions of a step, so together they see the same samples, however many units there
 * are. */
struct rt_sampler {
    int64_t samples; /* at least 1 */
    bool shuffle;
    uint64_t seed;
};

/* Index of the sample at a position of the run. */
int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position);

struct rt_data {
    const struct rt_port *port;
    int64_t batch; /* samples per micro-batch */
    bool shared;   /* the one tensor in the file is that of all samples */
    bool tokens;   /* a file of tokens, which may have more samples than the other inputs */
    struct rt_reader file;
    int64_t first;               /* offset of sample 0 in the file */
    enum rt_dtype dtype;         /* in the file */
    int64_t samples, per_sample; /* per_sample: elements. shared: copies of the tensor, and its elements */
};

/* Opens "FILE.npy" or "FILE.bin:u16[:shift=1]" for an input of the program. Its dimension 0 is `batch` or a multiple; a
 * sample then has several rows of the input. RT_REASON_CONTENT: type or shape does not fit the input. */
bool rt_data_open(struct rt_data *data, const struct rt_port *port, int64_t batch, const char *spec,
                  struct rt_reason *why);

/* The hash of the samples that the file has: of all bytes up to RT_DATA_HASHED, of larger files of that many, spread
 * evenly. Files of the same hash, type and number of samples count as the same data. */
#define RT_DATA_HASHED ((int64_t)16 << 20)
bool rt_data_hash(const struct rt_data *data, char hash[RT_HASH_HEX], struct rt_reason *why);

void rt_data_close(struct rt_data *data);

/* Reads the `batch` samples at positions `position` and following into `dst`, which holds one input. RT_REASON_CHANGED:
 * the file was truncated since it was opened. */
bool rt_data_read(const struct rt_data *data, const struct rt_sampler *sampler, int64_t position, void *dst,
                  struct rt_reason *why);

#endif
