/* Tensors in files (.npy, TensorProto), their element types, and how they are cut. */
#define _GNU_SOURCE 1

#include "base/number/half.h"
#include "base/number/hash.h"
#include "base/npy.h"
#include "base/shape/part.h"
#include "base/io/tensor_pb.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* .npy */

/* A file of version `major` with that dictionary and `data` bytes behind it. */
static size_t make_npy(unsigned char *out, int major, const char *dict, size_t data) {
    size_t length = strlen(dict), prefix = major == 1 ? 10 : 12;
    memset(out, 0, prefix);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)major;
    out[8] = (unsigned char)length;
    out[9] = (unsigned char)(length >> 8);
    memcpy(out + prefix, dict, length);
    for (size_t i = 0; i < data; i++) out[prefix + length + i] = (unsigned char)i;
    return prefix + length + data;
}

static void accept_npy(int major, const char *dict, size_t data, enum rt_dtype dtype, int ndim, const int64_t *dims) {
    unsigned char file[512];
    struct rt_tensor tensor;
    struct rt_reason why;
    size_t bytes = make_npy(file, major, dict, data);
    if (!rt_npy_parse(&tensor, file, bytes, &why)) fail_msg("%s: %s", dict, why.text);
    assert_int_equal(tensor.dtype, dtype);
    assert_int_equal(tensor.ndim, ndim);
    for (int i = 0; i < ndim; i++) assert_int_equal(tensor.dims[i], dims[i]);
    assert_ptr_equal(tensor.data, file + bytes - data);
}

static void refuse_npy(const char *dict, size_t data, const char *expected) {
    unsigned char file[512];
    struct rt_tensor tensor;
    struct rt_reason why;
    assert_false(rt_npy_parse(&tensor, file, make_npy(file, 1, dict, data), &why));
    if (!strstr(why.text, expected)) fail_msg("%s gives '%s', not '%s'", dict, why.text, expected);
}

TEST(npy_versions_and_spellings) {
    accept_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24, RT_F32, 2, (int64_t[]){2, 3});
    accept_npy(2, "{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<i8\"}\n", 24, RT_I64, 1, (int64_t[]){3});
    accept_npy(3, "{'descr': '|V2', 'fortran_order': False, 'shape': ()}\n", 2, RT_BF16, 0, NULL);
    accept_npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (0, 7L), }\n", 0, RT_BOOL, 2, (int64_t[]){0, 7});
}

TEST(npy_refusals) {
    refuse_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24, "Fortran order");
    refuse_npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", 24, "big-endian");
    refuse_npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }", 48, "'<c8' is not supported");
    refuse_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8, "structured");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23,
               "needs 24 bytes of data, but the file has 23");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 25, "but the file has 25");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }", 0, "extent expected");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 16, "overflows");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 0, "64 bits");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, "more than 8");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, }", 0, "is missing");
    refuse_npy("{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 0, "unexpected key");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, "after the dictionary");
    refuse_npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, "fortran_order");
}

TEST(npy_survives_every_truncation_and_byte) {
    unsigned char file[512];
    struct rt_tensor tensor;
    struct rt_reason why;
    size_t bytes = make_npy(file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24);
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *copy = malloc(n ? n : 1);
        memcpy(copy, file, n);
        assert_false(rt_npy_parse(&tensor, copy, n, &why));
        free(copy);
    }
    for (size_t i = 0; i < bytes; i++)
        for (int value = 0; value < 256; value++) {
            unsigned char *copy = malloc(bytes);
            memcpy(copy, file, bytes);
            copy[i] = (unsigned char)value;
            rt_npy_parse(&tensor, copy, bytes, &why);
            free(copy);
        }
}

TEST(npy_files_round_trip) {
    char path[] = "/tmp/rankc-npy-XXXXXX";
    struct rt_tensor tensor;
    struct rt_reason why;
    unsigned char data[6 * 8];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
    close(mkstemp(path));
    for (int t = 0; t < RT_DTYPE_COUNT; t++) {
        assert_true(rt_npy_write(path, (enum rt_dtype)t, 3, (int64_t[]){1, 2, 3}, data, &why));
        assert_true(rt_npy_read(&tensor, path, &why));
        const enum rt_dtype read = rt_dtype_is_code((enum rt_dtype)t) ? RT_BYTES : (enum rt_dtype)t;
        assert_true(tensor.dtype == read && tensor.ndim == 3 && tensor.dims[2] == 3 && tensor.count == 6);
        assert_memory_equal(tensor.data, data, 6 * rt_dtype_bytes((enum rt_dtype)t));
        rt_tensor_free(&tensor);
    }
    unlink(path);
    assert_false(rt_npy_write("/no/such/directory/x.npy", RT_F32, 0, NULL, data, &why));
    assert_int_equal(why.kind, RT_REASON_SYSTEM);
    char header[RT_NPY_HEADER_BYTES];
    const int64_t widest[8] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    assert_int_equal(rt_npy_format(header, RT_F32, 8, widest) % 64, 0);
}

/* TensorProto */

/* Field numbers of TensorProto as tags: dims 1, data_type 2, float_data 4, int32_data 5, int64_data 7, name 8,
 * raw_data 9, double_data 10, uint64_data 11, data_location 14; wire types: 0 varint, 1 64 bits, 2 bytes, 5 32
 * bits. */
#define TAG(field, wire) (char)((field) << 3 | (wire))

static bool parse_pb(struct rt_tensor *tensor, const char *bytes, size_t count, struct rt_reason *why) {
    char *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    bool ok = rt_tensor_pb_parse(tensor, copy, count, why);
    free(copy);
    return ok;
}

#define ACCEPT_PB(tensor, ...)                                                                                         \
    do {                                                                                                               \
        const char bytes_[] = {__VA_ARGS__};                                                                           \
        struct rt_reason why_;                                                                                         \
        if (!parse_pb(tensor, bytes_, sizeof bytes_, &why_)) fail_msg("%s", why_.text);                                \
    } while (0)
#define REFUSE_PB(expected, ...)                                                                                       \
    do {                                                                                                               \
        const char bytes_[] = {__VA_ARGS__};                                                                           \
        struct rt_reason why_;                                                                                         \
        struct rt_tensor tensor_;                                                                                      \
        assert_false(parse_pb(&tensor_, bytes_, sizeof bytes_, &why_));                                                \
        if (!strstr(why_.text, expected)) fail_msg("'%s', not '%s'", why_.text, expected);                             \
    } while (0)

TEST(tensor_pb_encodings) {
    struct rt_tensor t;
    /* dims one by one, raw data */
    ACCEPT_PB(&t, TAG(1, 0), 1, TAG(1, 0), 2, TAG(2, 0), 5, TAG(9, 2), 4, 1, 0, (char)0xff, (char)0xff, TAG(8, 2), 1,
              'n');
    assert_true(t.dtype == RT_I16 && t.ndim == 2 && t.dims[0] == 1 && t.dims[1] == 2 && ((int16_t *)t.data)[1] == -1);
    rt_tensor_free(&t);
    /* packed dims; floats packed and one by one */
    ACCEPT_PB(&t, TAG(1, 2), 1, 2, TAG(2, 0), 1, TAG(4, 2), 4, 0, 0, (char)0x80, 0x3f, TAG(4, 5), 0, 0, 0, 0x40);
    assert_true(t.count == 2 && ((float *)t.data)[0] == 1 && ((float *)t.data)[1] == 2);
    rt_tensor_free(&t);
    /* a negative int8 in int32_data: ten bytes */
    ACCEPT_PB(&t, TAG(1, 0), 1, TAG(2, 0), 3, TAG(5, 2), 10, (char)0xfe, (char)0xff, (char)0xff, (char)0xff, (char)0xff,
              (char)0xff, (char)0xff, (char)0xff, (char)0xff, 1);
    assert_int_equal(*(int8_t *)t.data, -2);
    rt_tensor_free(&t);
    /* a scalar double; an empty tensor; booleans are made 0 and 1 */
    ACCEPT_PB(&t, TAG(2, 0), 11, TAG(10, 1), 0, 0, 0, 0, 0, 0, (char)0xf0, 0x3f);
    assert_true(t.ndim == 0 && *(double *)t.data == 1);
    rt_tensor_free(&t);
    ACCEPT_PB(&t, TAG(1, 0), 0, TAG(2, 0), 7);
    assert_int_equal(t.count, 0);
    rt_tensor_free(&t);
    ACCEPT_PB(&t, TAG(1, 0), 2, TAG(2, 0), 9, TAG(9, 2), 2, 0, 7);
    assert_int_equal(((uint8_t *)t.data)[1], 1);
    rt_tensor_free(&t);
    ACCEPT_PB(&t, TAG(1, 0), 1, TAG(2, 0), 13, TAG(11, 0), (char)0xac, 2);
    assert_int_equal(*(uint64_t *)t.data, 300);
    rt_tensor_free(&t);
}

TEST(tensor_pb_refusals) {
    REFUSE_PB("no data_type", TAG(1, 0), 1);
    REFUSE_PB("data_type 8 is not supported", TAG(2, 0), 8);
    REFUSE_PB("malformed protobuf", TAG(2, 3), 1);
    REFUSE_PB("malformed protobuf", 0, 1);
    REFUSE_PB("malformed protobuf", TAG(9, 2), 5, 1);
    REFUSE_PB("raw_data has 3", TAG(1, 0), 1, TAG(2, 0), 1, TAG(9, 2), 3, 1, 1, 1, TAG(8, 2), 1, 'n');
    REFUSE_PB("the data has 1", TAG(1, 0), 2, TAG(2, 0), 7, TAG(7, 0), 1);
    REFUSE_PB("more elements", TAG(1, 0), 1, TAG(2, 0), 7, TAG(7, 2), 2, 1, 1);
    REFUSE_PB("negative dimension", TAG(2, 0), 7, TAG(1, 0), (char)0xff, (char)0xff, (char)0xff, (char)0xff, (char)0xff,
              (char)0xff, (char)0xff, (char)0xff, (char)0xff, 1);
    REFUSE_PB("elements, but the file only", TAG(2, 0), 7, TAG(1, 0), (char)0xff, (char)0xff, (char)0xff, 127);
    REFUSE_PB("does not fit", TAG(1, 0), 1, TAG(2, 0), 10, TAG(5, 0), (char)0x80, (char)0x80, 4);
    REFUSE_PB("twice", TAG(1, 0), 1, TAG(2, 0), 7, TAG(7, 0), 1, TAG(9, 2), 1, 1);
    REFUSE_PB("external", TAG(1, 0), 1, TAG(2, 0), 7, TAG(14, 0), 1);
    REFUSE_PB("more than 8", TAG(2, 0), 7, TAG(1, 2), 9, 1, 1, 1, 1, 1, 1, 1, 1, 1);
}

TEST(tensor_pb_survives_every_truncation_and_byte) {
    static const char file[] = {TAG(1, 2), 2,          2, 1,         TAG(2, 0), 7,   TAG(7, 2), 3,
                                1,         (char)0x96, 1, TAG(8, 2), 2,         'i', 'd'};
    struct rt_tensor tensor;
    struct rt_reason why;
    for (size_t n = 0; n < sizeof file; n++) {
        const bool complete = n == 11; /* what is cut off is the name */
        assert_int_equal(parse_pb(&tensor, file, n, &why), complete);
        if (complete) rt_tensor_free(&tensor);
    }
    for (size_t i = 0; i < sizeof file; i++)
        for (int value = 0; value < 256; value++) {
            char copy[sizeof file];
            memcpy(copy, file, sizeof file);
            copy[i] = (char)value;
            if (parse_pb(&tensor, copy, sizeof copy, &why)) rt_tensor_free(&tensor);
        }
}

/* Element types */

TEST(halves_survive_f32) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t half = (uint16_t)bits;
        const bool f16_nan = (half & 0x7c00) == 0x7c00 && (half & 0x3ff), bf16_nan = (half & 0x7fff) > 0x7f80;
        if (f16_nan)
            assert_true(isnan(rt_f16_to_f32(half)) && (rt_f32_to_f16(rt_f16_to_f32(half)) & 0x7e00) == 0x7e00);
        else
            assert_int_equal(rt_f32_to_f16(rt_f16_to_f32(half)), half);
        if (!bf16_nan) assert_int_equal(rt_f32_to_bf16(rt_bf16_to_f32(half)), half);
    }
}

/* Halfway between neighbours goes to the even one, a hair beside it to the nearer one: also from f64 and integers.
 */
TEST(conversions_round_once) {
    static const struct {
        double value;
        uint16_t f16, bf16;
    } rows[] = {{1 + 0x1p-11, 0x3c00, 0x3f80},
                {1 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80},
                {1 + 3 * 0x1p-11, 0x3c02, 0x3f80},
                {1 + 0x1p-8, 0x3c04, 0x3f80},
                {1 + 0x1p-8 + 0x1p-45, 0x3c04, 0x3f81},
                {65519.99, 0x7bff, 0x4780},
                {65520, 0x7c00, 0x4780},
                {0x1p-25, 0, 0x3300},
                {0x1.0000000001p-25, 1, 0x3300},
                {-0x1p-26, 0x8000, 0xb280},
                {1e300, 0x7c00, 0x7f80}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t half;
        rt_convert(&half, RT_F16, &rows[i].value, RT_F64, 1);
        assert_int_equal(half, rows[i].f16);
        rt_convert(&half, RT_BF16, &rows[i].value, RT_F64, 1);
        assert_int_equal(half, rows[i].bf16);
    }
    const int64_t whole = ((int64_t)257 << 54) + 1; /* just above the middle of two bf16 */
    uint16_t half;
    rt_convert(&half, RT_BF16, &whole, RT_I64, 1);
    assert_int_equal(rt_bf16_to_f32(half) == 258 * 0x1p54f, 1);
}

TEST(conversions_between_kinds) {
    static const double reals[] = {-1.9, 300, (double)NAN, -1e30, 1e30, 0.5, (double)INFINITY};
    int8_t small[7];
    uint64_t large[7];
    int64_t wide[7];
    uint8_t truth[7];
    rt_convert(small, RT_I8, reals, RT_F64, 7);
    rt_convert(large, RT_U64, reals, RT_F64, 7);
    rt_convert(wide, RT_I64, reals, RT_F64, 7);
    rt_convert(truth, RT_BOOL, reals, RT_F64, 7);
    assert_true(small[0] == -1 && small[1] == 127 && small[2] == 0 && small[3] == -128 && small[6] == 127);
    assert_true(large[0] == 0 && large[1] == 300 && large[2] == 0 && large[4] == UINT64_MAX);
    assert_true(wide[3] == INT64_MIN && wide[4] == INT64_MAX && wide[6] == INT64_MAX);
    assert_true(truth[0] == 1 && truth[2] == 1 && truth[5] == 1);
    const int64_t wrapped = 0x1ff;
    uint8_t low;
    rt_convert(&low, RT_U8, &wrapped, RT_I64, 1);
    assert_int_equal(low, 0xff);
    char unaligned[1 + 8 * 1000], back[1 + 4 * 1000];
    for (int i = 0; i < 1000; i++) {
        double value = i - 500;
        memcpy(unaligned + 1 + i * 8, &value, 8);
    }
    rt_convert(back + 1, RT_F32, unaligned + 1, RT_F64, 1000);
    for (int i = 0; i < 1000; i++) {
        float value;
        memcpy(&value, back + 1 + i * 4, 4);
        assert_true(value == (float)(i - 500));
    }
}

TEST(types_have_names) {
    for (int t = 0; t < RT_DTYPE_COUNT; t++) {
        assert_int_equal(rt_dtype_by_name(rt_dtypes[t].name), t);
        assert_int_equal(rt_dtype_by_onnx(rt_dtypes[t].onnx), t);
        assert_int_equal(rt_dtype_by_npy(rt_dtypes[t].npy), rt_dtype_is_code((enum rt_dtype)t) ? (int)RT_BYTES : t);
    }
    assert_int_equal(rt_dtype_by_name("f8"), RT_DTYPE_NONE);
}

/* Cuts */

/* Every index is in one part, larger parts come first, and parts differ by at most one grain. */
TEST(cuts_cover_larger_first) {
    for (int64_t grains = 0; grains < 20; grains++)
        for (int64_t grain = 1; grain < 4; grain++)
            for (int64_t blocks = 1; blocks < 4; blocks++)
                for (int ways = 1; ways < 7; ways++) {
                    const struct rt_cut cut = {grains * grain * blocks, blocks, grain, ways};
                    int64_t total = 0;
                    assert_int_equal(rt_cut_start(&cut, 0), 0);
                    for (int r = 0; r < ways; r++) {
                        const int64_t length = rt_cut_length(&cut, r);
                        if (r > 0) assert_true(length <= rt_cut_length(&cut, r - 1));
                        assert_true(length % grain == 0 && rt_cut_length(&cut, 0) - length <= grain);
                        assert_int_equal(rt_cut_extent(&cut, r), blocks * length);
                        total += rt_cut_extent(&cut, r);
                    }
                    assert_int_equal(total, cut.extent);
                }
    const struct rt_cut drawn = {24, 2, 3, 3}; /* the picture in part.h */
    assert_true(rt_cut_start(&drawn, 1) == 6 && rt_cut_length(&drawn, 0) == 6 && rt_cut_length(&drawn, 2) == 3);
}

TEST(hashes_are_those_of_xxhsum) {
    char hex[RT_HASH_HEX], pieces[RT_HASH_HEX];
    struct rt_hash hash;
    rt_hash_bytes("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    rt_hash_bytes("ab", 2, hex);
    rt_hash_start(&hash);
    rt_hash_add(&hash, "a", 1), rt_hash_add(&hash, "b", 1);
    rt_hash_hex(&hash, pieces);
    assert_string_equal(hex, pieces);
    rt_hash_start(&hash);
    rt_hash_text(&hash, "a"), rt_hash_text(&hash, "b");
    rt_hash_hex(&hash, hex);
    rt_hash_start(&hash);
    rt_hash_text(&hash, "ab"), rt_hash_text(&hash, "");
    rt_hash_hex(&hash, pieces);
    assert_string_not_equal(hex, pieces);
}

int main(void) {
    return run_all_tests("tensors", NULL, NULL);
}
