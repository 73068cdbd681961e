#include "coded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values that are in memory at a time, unless one group has more. */
enum { VALUES = 1 << 18, TURNED = 16 };

/* A scale is that of the element farthest from 0, by `divisor`, or of its magnitude. Codes are within `least` and
 * `most`, and stored with `offset` added. */
struct form {
    float divisor;
    bool magnitude;
    int least, most, offset;
};

static struct form form_of(const struct rt_coding *coding) {
    return coding->bits == 4 ? (struct form){-8, false, -8, 7, 8} : (struct form){127, true, -127, 127, 0};
}

int64_t rt_coded_bytes(const struct rt_coding *coding, int64_t groups) {
    return coding->makes == RT_SCALES ? groups * (int64_t)sizeof(float) : groups * coding->group * coding->bits / 8;
}

int64_t rt_coded_columns(const struct rt_coding *coding) {
    return coding->makes == RT_SCALES ? 1 : coding->group * coding->bits / 8;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Of elements as far from 0 as others, the first counts. NaN if one is not finite, so that results are not either. That
 * of a finite one makes no code infinite, though it is rounded. The bits of magnitudes are ordered as the numbers are.
 */
static float scale_of(const struct form *form, const float *value, int64_t count) {
    int32_t above = 0, below = 0, bits;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&bits, &value[i], sizeof bits);
        const int32_t magnitude = bits & INT32_MAX, up = bits < 0 ? 0 : magnitude, down = bits < 0 ? magnitude : 0;
        above = up > above ? up : above;
        below = down > below ? down : below;
    }
    bool negative = below > above;
    const int32_t most = negative ? below : above;
    if (most >= 0x7f800000) return NAN;
    float far;
    memcpy(&far, &most, sizeof far);
    for (int64_t i = 0; most && above == below; i++) {
        if (fabsf(value[i]) != far) continue;
        negative = value[i] < 0;
        break;
    }
    const float scale = (negative && !form->magnitude ? -far : far) / form->divisor;
    return isinf(scale * form->divisor) ? nextafterf(scale, 0) : scale;
}

/* The code as it is stored; of NaN, the least. Halves are rounded away from 0: the float below 1/2 with the number's
 * sign is added, and the sum truncated, which a vector of numbers can be. */
static inline unsigned char code_of(const struct form *form, float value, float reciprocal) {
    const float code = value * reciprocal + (float)form->offset, away = code + copysignf(0x1.fffffep-2f, code);
    const float least = (float)(form->least + form->offset), most = (float)(form->most + form->offset);
    const float above = away > least ? away : least;
    return (unsigned char)(int)(above < most ? above : most);
}

static void put_codes(const struct rt_coding *coding, const struct form *form, const float *restrict value, float scale,
                      unsigned char *restrict to) {
    enum { SOME = 64 };
    const struct form own = *form;
    const float reciprocal = scale != 0 ? 1 / scale : 0;
    for (int64_t at = 0, n; at < coding->group; at += n) {
        unsigned char code[SOME] = {0};
        n = least(SOME, coding->group - at);
        for (int64_t i = 0; i < n; i++) code[i] = code_of(&own, value[at + i], reciprocal);
        if (coding->bits == 8) memcpy(to + at, code, (size_t)n);
        for (int64_t i = 0; i < n / 2 && coding->bits == 4; i++)
            to[at / 2 + i] = (unsigned char)(code[2 * i] | code[2 * i + 1] << 4);
    }
}

/* `count` stored elements from `index` on, as f32. */
static bool fetch(const struct rt_coded *from, int64_t index, int64_t count, float *to, unsigned char *buffer,
                  struct rt_reason *why) {
    const int64_t size = (int64_t)rt_dtype_bytes(from->stored);
    const unsigned char *bytes = from->bytes ? from->bytes + index * size : buffer;
    if (!from->bytes && !rt_reader_get(from->file, from->offset + index * size, buffer, (size_t)(count * size), why))
        return false;
    rt_convert(to, RT_F32, bytes, from->stored, (size_t)count);
    return true;
}

/* What one call reads at a time: `rows` rows of one matrix and some groups. Values lie row after row, or of weights
 * (k, n), of which one group is read, index after index of the group. */
struct piece {
    int64_t row, rows, group, groups;
    float *value, *turned; /* turned: of TURNED rows */
    unsigned char *buffer; /* for what is read from a file */
};

static bool read_piece(const struct rt_coded *from, const struct piece *at, struct rt_reason *why) {
    const int64_t n = from->n, k = from->k, length = at->groups * from->coding.group,
                  first = at->group * from->coding.group, matrix = at->row / n * n * k, row = at->row % n;
    bool read = true;
    for (int64_t r = 0; r < at->rows && read && from->coding.turned; r++)
        read = fetch(from, matrix + (row + r) * k + first, length, at->value + r * length, at->buffer, why);
    for (int64_t p = 0; p < length && read && !from->coding.turned; p++)
        read = fetch(from, matrix + (first + p) * n + row, at->rows, at->value + p * at->rows, at->buffer, why);
    return read;
}

static void make_groups(const struct rt_coding *coding, const float *value, int64_t groups, unsigned char *to) {
    const struct form form = form_of(coding);
    for (int64_t g = 0; g < groups; g++, value += coding->group) {
        const float scale = scale_of(&form, value, coding->group);
        if (coding->makes == RT_SCALES)
            memcpy(to + g * (int64_t)sizeof scale, &scale, sizeof scale);
        else
            put_codes(coding, &form, value, scale, to + g * rt_coded_bytes(coding, 1));
    }
}

/* Rows of a cache line's width are turned at a time. */
static void make_piece(const struct rt_coding *coding, const struct piece *at, unsigned char *to, int64_t apart) {
    for (int64_t r = 0; r < at->rows && coding->turned; r++)
        make_groups(coding, at->value + r * at->groups * coding->group, at->groups, to + r * apart);
    for (int64_t r = 0; r < at->rows && !coding->turned; r += TURNED) {
        const int64_t rows = least(TURNED, at->rows - r);
        for (int64_t p = 0; p < coding->group; p++)
            for (int64_t i = 0; i < rows; i++) at->turned[i * coding->group + p] = at->value[p * at->rows + r + i];
        for (int64_t i = 0; i < rows; i++) make_groups(coding, at->turned + i * coding->group, 1, to + (r + i) * apart);
    }
}

static struct piece first_piece(const struct rt_coded *from, int64_t rows, int64_t groups) {
    const int64_t fit = VALUES / from->coding.group > 1 ? VALUES / from->coding.group : 1;
    struct piece piece = {.groups = from->coding.turned ? least(groups, fit) : 1};
    piece.rows = least(least(rows, from->n), fit / piece.groups > 1 ? fit / piece.groups : 1);
    return piece;
}

bool rt_coded_make(const struct rt_coded *from, int64_t row, int64_t rows, int64_t group, int64_t groups, void *to,
                   struct rt_reason *why) {
    struct piece most = first_piece(from, rows, groups), at = most;
    if (!rows || !groups) return true;
    const int64_t values = most.rows * most.groups * from->coding.group, apart = rt_coded_bytes(&from->coding, groups);
    bool made = true;
    const int64_t turned = TURNED * from->coding.group;
    at.value = malloc((size_t)(values + turned) * sizeof(float) + (size_t)values * 8);
    if (!at.value) return rt_refuse_memory(why, (size_t)values * sizeof(float));
    at.turned = at.value + values;
    at.buffer = (unsigned char *)(at.turned + turned);
    for (int64_t j = 0; j < rows && made; j += at.rows) {
        at.row = row + j;
        at.rows = least(least(most.rows, rows - j), from->n - at.row % from->n);
        for (int64_t g = 0; g < groups && made; g += at.groups) {
            at.group = group + g;
            at.groups = least(most.groups, groups - g);
            made = read_piece(from, &at, why);
            if (made)
                make_piece(&from->coding, &at, (unsigned char *)to + j * apart + rt_coded_bytes(&from->coding, g),
                           apart);
        }
    }
    free(at.value);
    return made;
}
