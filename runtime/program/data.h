/* Training data: files of samples, read where they lie.
 *
 * Two forms, by the file's name:
 *   X.npy                       axis 0 counts samples; the rest is the input's shape behind its batch, any number type
 *   X.bin:u16[:shift=K]         raw little-endian tokens (u8, u16, u32, i32, i64): sample i is the T tokens from i T +
 *                               K on, T the length of the input behind its batch. With shift=1, labels beside inputs.
 *
 * Which sample comes when is the sampler's to say. Values are converted to the input's type. Files are
 * untrusted: sizes are checked when they are opened, and after every read (Note [Files that shrink] in
 * base/file_reader.h); whether an index is in range is the kernels' to see. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "base/file_reader.h"
#include "rt.h"
#include "program/sampler.h"

struct rt_data {
    const struct rt_port *port;
    int64_t batch; /* samples of a micro-batch */
    bool tokens;   /* a file of tokens, which may have more of them than are used */
    struct rt_reader file;
    int64_t first;               /* offset of sample 0 in the file */
    enum rt_dtype dtype;         /* stored */
    int64_t samples, per_sample; /* elements */
};

/* Opens "FILE.npy" or "FILE.bin:u16[:shift=1]" for an input of the program whose dimension 0 has `batch` samples, or a
 * multiple: then a sample is as many of its rows. RT_REASON_CONTENT: it does not fit. */
bool rt_data_open(struct rt_data *data, const struct rt_port *port, int64_t batch, const char *spec,
                  struct rt_reason *why);
void rt_data_close(struct rt_data *data);

/* The micro-batch of the samples at positions `position` and on, into `dst`, which holds one input. RT_REASON_CHANGED:
 * the file has been cut since it was opened. */
bool rt_data_read(const struct rt_data *data, const struct rt_sampler *sampler, int64_t position, void *dst,
                  struct rt_reason *why);

#endif
