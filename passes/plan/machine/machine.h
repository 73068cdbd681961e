/* Machines that programs run on: what the cost model (kernel_time.h, moves.h, passes/rank/estimate.h) knows of a device
 * and of the links between devices. No plan is correct or refused because of it.
 *
 * A machine is a row of machines.def or a JSON file, such as `rankc profile` writes:
 *
 *   {"format": 1, "name": "h100", "memory": 85899345920, "bandwidth": 3.35e12, "traffic": 0.85, "launch": 4e-06,
 *    "rates": {"f64": 6.7e13, "f32": 6.7e13, "half": 7.95e14, "fp8": 1.4e15},
 *    "peaks": {"f64": 6.7e13, "f32": 6.7e13, "half": 9.89e14, "fp8": 1.979e15},
 *    "half_extents": [500, 90, 170], "multiprocessors": 132, "attention": 0.5, "half_head": 9.7,
 *    "overlap": 0.75, "slowdown": 1.13,
 *    "levels": [{"devices": 8, "bandwidth": 2.27e11, "latency": 2e-05,
 *                "collectives": {"all_reduce": {"bandwidth": 2.5e11, "latency": 2.4e-05}, ..}},
 *               {"bandwidth": 3.4e10, "latency": 4e-05}]}
 *
 * All numbers are in bytes, seconds, floating-point operations, and products of them. A rate is 0 where the machine has
 * no products of the type; it has those of f32. What was measured with all ranks computing holds while they do. These
 * keys may be left out; a processor's file has them:
 *
 *   "alone": 1.04            how much faster arithmetic is while no other rank computes
 *   "slowdown": 1.13         how much slower a device computes beside a collective
 *   "multiprocessors": 132   each computes a tile of a product at a time; without them, products have no tiles
 *   "own_attention": 0.34    the part of that rate that rankc's own kernels reach, beside a library's; without it, with
 *                            multiprocessors, that of machines.def
 *   "half_head": 9.7         elements of a head at which attention reaches half of its rate
 *   "writes": 2              bytes that a written byte moves unless it replaces an operand: caches load a line first
 *   "correction": 1.2        measured steps take that many times as long as the numbers above say (--measure-topk)
 *   "elementwise": 3e10      operations per second of elementwise expressions
 *   "host_bandwidth": 5.5e10 between a GPU and the host's memory, in each direction; without it, that of machines.def
 *   "by_size": [[262144, 6e10], [67108864, 1.6e10]]     bytes that a kernel touches, and the bandwidth of
 *                            those that it moves
 *   "by_size_alone": [..]    the same while no other rank computes
 *   "kernels": {"depthwise": [7e9, 80], "pointwise": [1e11, 20, 2, 4], ..}    operations per second of kernels that are
 *                            no matrix products (machine_kernels.def), and the extents at which half of that is
 *                            reached, in the order of enum machine_extent; 0 if left out
 *   "distant": {"depthwise": 1.5, ..}    the extra time of a byte that is not in the nearest cache, in that of
 *                            elementwise kernels, which access memory sequentially; 1 if left out
 *   in a level or collective, "by_size": [..]           bytes of a collective's tensor, and the bandwidth then
 *   in a level, "collectives": {..}                     alpha and beta of kinds of collectives (ir/collectives.def); of
 *                            those that are left out, the level's own */
#ifndef PASSES_PLAN_MACHINE_H
#define PASSES_PLAN_MACHINE_H

#include "ir/op.h"
#include "runtime/base/text/json.h"

/* Types between which the speed of products differs: f64; f32; f16 and bf16; 8-bit floats. */
enum machine_type { MACHINE_F64, MACHINE_F32, MACHINE_HALF, MACHINE_FP8, MACHINE_TYPES };

/* Kernels with rates of their own. */
enum machine_kernel {
#define KERNEL(id, name) MACHINE_##id,
#include "passes/plan/machine/machine_kernels.def"
#undef KERNEL
    MACHINE_KERNELS
};
/* What their rates depend on: positions of an image at which there is a window, or elements that are reduced to one;
 * output channels of a group, and products that are summed for an element, of the convolution itself also where the
 * kernel is one of its gradients. */
enum machine_extent { MACHINE_POSITIONS, MACHINE_OUTPUTS, MACHINE_SUMS, MACHINE_EXTENTS };
struct machine_kernel_rate {
    double rate;                  /* operations per second of large ones; 0: as products */
    double half[MACHINE_EXTENTS]; /* the extents at which half of that is reached */
    double
        distant; /* extra time of a byte that is not in the nearest cache, in that of an elementwise kernel; 0: as 1 */
};
/* The smallest image that rankc profile measures. Smaller ones reach the same rate of products, since kernels join
 * those of a batch. */
enum { MACHINE_LEAST_POSITIONS = 7 * 7 };

/* A bandwidth that depends on a number of bytes: points by ascending bytes, none if it is constant. Between two points,
 * the time of a byte changes with the logarithm of the bytes. */
enum { MACHINE_POINTS = 12 };
struct machine_curve {
    int n;
    double bytes[MACHINE_POINTS], bandwidth[MACHINE_POINTS];
};

/* Alpha and beta of a collective. */
struct machine_link {
    double bandwidth;             /* bytes per second that one device sends; 0: unknown */
    double latency;               /* seconds of an empty collective */
    struct machine_curve by_size; /* bandwidth by bytes of the tensor */
};
/* Links between the devices of a group whose ranks are at most `devices` apart. */
struct machine_level {
    double devices;                             /* of one domain of this level; the last level has no end */
    struct machine_link link, own[COLLECTIVES]; /* of all collectives, but for those whose own link is known */
};
enum { MACHINE_LEVELS = 4 };

struct machine {
    const char *name;
    double memory;              /* bytes of a device; 0: unknown */
    double bandwidth, traffic;  /* of the device's memory, bytes per second; the part of it that kernels reach */
    double launch;              /* seconds to start a kernel */
    double host_bandwidth;      /* bytes per second in each direction between the device and the host's memory */
    double rate[MACHINE_TYPES]; /* of large products, operations per second that are reached */
    double peak[MACHINE_TYPES]; /* as the vendor states it */
    double half_extents[3];     /* m, n and k at which a product of (m, k) by (k, n) reaches half of that */
    double multiprocessors;     /* each computes a tile of a product at a time; 0: products have no tiles */
    double attention;           /* the part of the rate that fused attention reaches with heads of 128 elements */
    double own_attention;       /* the part of that which rankc's kernels reach, beside a library's; 0: all */
    double half_head;           /* elements of a head at which it reaches half of its rate */
    double overlap;             /* the part of the time of other work in which it can hide a collective */
    double slowdown;            /* factor of the time of that work meanwhile */
    double alone;               /* factor of rates while no other rank computes */
    double writes;              /* bytes that a written byte moves, unless it replaces an operand */
    double correction;          /* factor of the estimated time of a step, from measured ones */
    double elementwise;         /* operations per second of elementwise expressions */
    struct machine_curve by_size, by_size_alone;        /* bandwidth by the bytes that a kernel touches */
    struct machine_kernel_rate kernel[MACHINE_KERNELS]; /* of f32 */
    int nlevels;
    struct machine_level level[MACHINE_LEVELS];
};

/* The machine of policies if the user names none: one core of a server, with the other ranks on the same host. Fixed
 * estimates, not measured. */
extern const struct machine machine_default;
/* The machine, or machine_default for NULL. */
const struct machine *machine_or_default(const struct machine *machine);
/* What GPUs have in common (machines.def). */
extern const struct machine machine_gpu;

/* Reads a name of machines.def or a file whose name ends with .json: 0, or -1 after E0396: an unknown name, a file that
 * cannot be read, a key that is unknown, missing or out of range (with its line). Memory is of the arena. */
int machine_read(struct arena *arena, struct diags *diags, const char *name_or_file, struct machine *machine);
/* The same for another option, "--profile". */
int machine_read_of(struct arena *arena, struct diags *diags, const char *option, const char *name_or_file,
                    struct machine *machine);

/* The machine of machines.def with GPUs of that name, as the driver says it ("NVIDIA H200"), and nearest in bytes of
 * memory; NULL: none has them. */
const char *machine_of_gpu(const char *gpu, double memory);

/* The machine as the text of such a file, in the arena; NULL when memory ran out. */
const char *machine_text(struct arena *arena, const struct machine *machine);

/* Writes numbers of each type, "rates" or "peaks", as such a file has them. */
void machine_put_types(struct rt_json_writer *writer, const char *key, const double numbers[MACHINE_TYPES]);

/* The type in which products of those numbers are computed: f32, where the machine has no products of theirs. */
enum machine_type machine_type_of(const struct machine *machine, enum rt_dtype dtype);
/* Operations per second of large products of that type of numbers. */
double machine_rate(const struct machine *machine, enum rt_dtype dtype);

/* The part of that rate that a product of (m, k) by (k, n) reaches. */
double machine_reached(const struct machine *machine, double m, double n, double k);
/* The part of that rate that fused attention reaches with heads of that many elements, by a library or by rankc's own
 * kernels. */
double machine_attention(const struct machine *machine, double head, bool library);

/* Seconds per byte of a kernel that touches that many bytes, with that `distant` (struct machine_kernel_rate); alone:
 * while no other rank computes. What it needs beyond an elementwise kernel is the latency of accesses that are not
 * sequential, which is the same while no other rank computes. */
double machine_byte_seconds(const struct machine *machine, double bytes, bool alone, double distant);

/* A group of ranks that communicate: `ranks` devices whose numbers are `stride` apart. */
struct machine_group {
    const struct machine *machine;
    double ranks, stride;
};
/* What a collective of the group has at its disposal. Devices of one domain that belong to different groups of the same
 * kind share its links to other domains. */
struct machine_link machine_link(const struct machine_group *group, enum collective kind);

/* Two ranks with those numbers. */
struct machine_group machine_pair(const struct machine *machine, int first, int second);

/* Seconds of a collective, or of several for `parts` parts of a tensor of that many bytes, of which each rank has at
 * most all. */
double machine_collective(const struct machine_group *group, enum collective kind, double bytes, double parts);
/* The same for an exchange in which that many times the tensor's bytes pass through a rank's link. */
double machine_exchange(const struct machine_group *group, enum collective kind, double times, double bytes,
                        double parts);

/* The seconds that a collective does not add to those of computing beside it. */
double machine_hidden(const struct machine *machine, double computing, double collective);

#endif
