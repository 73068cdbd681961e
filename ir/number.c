#include "ir/number.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bits of the quiet NaN that is printed as "nan", by dtype. */
static uint64_t plain_nan(enum rt_dtype dtype) {
    switch (dtype) {
    case RT_F32: return 0x7fc00000;
    case RT_F16: return 0x7e00;
    case RT_BF16: return 0x7fc0;
    case RT_E4M3FN: return 0x7f;
    case RT_E4M3FNUZ:
    case RT_E5M2FNUZ: return 0x80;
    case RT_E5M2: return 0x7e;
    case RT_E8M0: return 0xff;
    default: return 0x7ff8000000000000;
    }
}

static double real_of(enum rt_dtype dtype, const void *bits) {
    double value;
    rt_convert(&value, RT_F64, bits, dtype, 1);
    return value;
}

static void print_nan(char *text, enum rt_dtype dtype, const void *bits) {
    uint64_t payload = 0;
    memcpy(&payload, bits, rt_dtype_bytes(dtype)); /* little endian, as all of rankc */
    if (payload == plain_nan(dtype))
        snprintf(text, NUMBER_TEXT, "nan");
    else
        snprintf(text, NUMBER_TEXT, "nan:0x%llx", (unsigned long long)payload);
}

static bool reads_back(const char *text, enum rt_dtype dtype, const void *bits) {
    unsigned char again[8];
    return number_parse(text, dtype, again) && memcmp(again, bits, rt_dtype_bytes(dtype)) == 0;
}

static void print_real(char *text, enum rt_dtype dtype, const void *bits) {
    double value = real_of(dtype, bits);
    if (isnan(value)) {
        print_nan(text, dtype, bits);
        return;
    }
    if (fabs(value) < 1e6 && value == floor(value)) {
        snprintf(text, NUMBER_TEXT, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT, "%.*g", digits, value);
        if (isinf(value) || reads_back(text, dtype, bits)) return;
    }
}

static bool is_real(enum rt_dtype dtype) {
    return rt_dtype_is_float(dtype) || rt_dtypes[dtype].kind == RT_KIND_CODE_FLOAT;
}

void number_print(char text[NUMBER_TEXT], enum rt_dtype dtype, const void *bits) {
    if (is_real(dtype)) {
        print_real(text, dtype, bits);
    } else if (rt_dtype_is_signed(dtype)) {
        int64_t value;
        rt_convert(&value, RT_I64, bits, dtype, 1);
        snprintf(text, NUMBER_TEXT, "%lld", (long long)value);
    } else {
        uint64_t value;
        rt_convert(&value, RT_U64, bits, dtype, 1);
        snprintf(text, NUMBER_TEXT, "%llu", (unsigned long long)value);
    }
}

static bool parse_nan(const char *text, enum rt_dtype dtype, void *bits) {
    char *end;
    uint64_t payload = plain_nan(dtype);
    if (*text == ':') {
        if (strncmp(text, ":0x", 3) != 0 || !text[3] || strspn(text + 3, "0123456789abcdef") != strlen(text + 3))
            return false;
        errno = 0;
        payload = strtoull(text + 3, &end, 16);
        if (errno || (rt_dtype_bytes(dtype) < 8 && payload >> (8 * rt_dtype_bytes(dtype)))) return false;
    } else if (*text) {
        return false;
    }
    memcpy(bits, &payload, rt_dtype_bytes(dtype));
    return isnan(real_of(dtype, bits));
}

static bool parse_real(const char *text, enum rt_dtype dtype, void *bits) {
    char *end;
    if (strncmp(text, "nan", 3) == 0) return parse_nan(text + 3, dtype, bits);
    bool infinite = strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
    if (!infinite && (!*text || strspn(text, "0123456789+-.eE") != strlen(text))) return false;
    double value = strtod(text, &end);
    if (*end) return false;
    rt_convert(bits, dtype, &value, RT_F64, 1);
    return infinite || !isinf(real_of(dtype, bits));
}

static bool parse_integer(const char *text, enum rt_dtype dtype, void *bits) {
    char *end;
    bool negative = *text == '-', is_unsigned = !rt_dtype_is_signed(dtype);
    if (strspn(text + negative, "0123456789") != strlen(text + negative) || !text[negative]) return false;
    if (is_unsigned && negative) return false;
    errno = 0;
    uint64_t value = is_unsigned ? strtoull(text, &end, 10) : (uint64_t)strtoll(text, &end, 10), again;
    if (errno || (dtype == RT_BOOL && value > 1)) return false;
    enum rt_dtype wide = is_unsigned ? RT_U64 : RT_I64;
    rt_convert(bits, dtype, &value, wide, 1);
    rt_convert(&again, wide, bits, dtype, 1);
    return again == value;
}

bool number_parse(const char *text, enum rt_dtype dtype, void *bits) {
    return is_real(dtype) ? parse_real(text, dtype, bits) : parse_integer(text, dtype, bits);
}
