/* Training data: files of samples, read where they lie.
 *
 * Two forms, by the file's name:
 *   X.npy                       axis 0 counts samples; the rest is the input's shape behind its batch, any number type
 *   X.bin:u16[:shift=K]         raw little-endian tokens (u8, u16, u32, i32, i64): sample i is the T tokens from i T + K on,
 *                               T the length of the input behind its batch. With shift=1, labels beside inputs.
 *
 * A micro-batch is as many samples as dimension 0 of the input; micro-batch j of a run holds samples [j B, (j + 1) B). When
 * the data ends, reading goes on from the start. Values are converted to the input's type. Files are mapped, and untrusted:
 * sizes are checked when they are opened; whether an index is in range is the kernels' to see. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "base/reason.h"
#include "rt.h"

struct rt_data {
    const struct rt_port *port;
    const void *file; /* mapped */
    int64_t file_bytes;
    const unsigned char *first;  /* of sample 0 */
    enum rt_dtype dtype;         /* stored */
    int64_t samples, per_sample; /* elements */
};

/* Opens "FILE.npy" or "FILE.bin:u16[:shift=1]" for an input of the program. RT_REASON_CONTENT: it does not fit. */
bool rt_data_open(struct rt_data *data, const struct rt_port *port, const char *spec, struct rt_reason *why);
void rt_data_close(struct rt_data *data);

/* Micro-batch `index` of the run, into `dst`, which holds one input. */
void rt_data_read(const struct rt_data *data, int64_t index, void *dst);

#endif
