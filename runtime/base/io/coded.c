#include "coded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values that are in memory at a time, unless one group has more. */
enum { VALUES = 1 << 18 };

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

/* The magnitude's bits, which are ordered as the numbers are; 0 of NaN. */
static inline uint32_t magnitude_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0x7fffffff;
    return bits > 0x7f800000 ? 0 : bits;
}

static float scale_of(const struct form *form, const float *value, int64_t count) {
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = magnitude_of(value[i]);
        most = bits > most ? bits : most;
    }
    float far = 0;
    int64_t first = 0;
    while (most && magnitude_of(value[first]) != most) first++;
    if (most) far = form->magnitude ? fabsf(value[first]) : value[first];
    return far / form->divisor;
}

/* The code as it is stored; of NaN, the least. Halves are rounded away from 0: the float below 1/2 with the number's
 * sign is added, and the sum truncated, which a vector of numbers can be. */
static inline unsigned char code_of(const struct form *form, float value, float reciprocal) {
    const float code = value * reciprocal + (float)form->offset, away = code + copysignf(0x1.fffffep-2f, code);
    const float least = (float)(form->least + form->offset), most = (float)(form->most + form->offset);
    const float above = away > least ? away : least;
    return (unsigned char)(int)(above < most ? above : most);
}

static void put_codes(const struct rt_coding *coding, const float *value, unsigned char *to) {
    const struct form form = form_of(coding);
    const float scale = scale_of(&form, value, coding->group), reciprocal = scale != 0 ? 1 / scale : 0;
    if (coding->bits == 8)
        for (int64_t i = 0; i < coding->group; i++) to[i] = code_of(&form, value[i], reciprocal);
    else
        for (int64_t i = 0; i < coding->group / 2; i++)
            to[i] = (unsigned char)(code_of(&form, value[2 * i], reciprocal) |
                                    code_of(&form, value[2 * i + 1], reciprocal) << 4);
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

/* What one call reads at a time: `rows` rows of one matrix and some groups. Values lie group after group, of each row
 * side by side. */
struct piece {
    int64_t row, rows, group, groups;
    float *value, *line;   /* line: of one read */
    unsigned char *buffer; /* for what is read from a file */
};

static void turn(const float *line, int64_t rows, int64_t apart, float *value) {
    for (int64_t r = 0; r < rows; r++) value[r * apart] = line[r];
}

static bool read_piece(const struct rt_coded *from, const struct piece *at, struct rt_reason *why) {
    const int64_t n = from->n, k = from->k, length = at->groups * from->coding.group,
                  first = at->group * from->coding.group, matrix = at->row / n * n * k, row = at->row % n;
    bool read = true;
    for (int64_t r = 0; r < at->rows && read && from->coding.turned; r++)
        read = fetch(from, matrix + (row + r) * k + first, length, at->value + r * length, at->buffer, why);
    for (int64_t p = 0; p < length && read && !from->coding.turned; p++) {
        read = fetch(from, matrix + (first + p) * n + row, at->rows, at->line, at->buffer, why);
        turn(at->line, at->rows, length, at->value + p);
    }
    return read;
}

static void make_piece(const struct rt_coding *coding, const struct piece *at, unsigned char *to, int64_t apart) {
    const struct form form = form_of(coding);
    const int64_t bytes = rt_coded_bytes(coding, 1);
    for (int64_t r = 0; r < at->rows; r++)
        for (int64_t g = 0; g < at->groups; g++) {
            const float *value = at->value + (r * at->groups + g) * coding->group;
            unsigned char *put = to + r * apart + g * bytes;
            const float scale = coding->makes == RT_SCALES ? scale_of(&form, value, coding->group) : 0;
            if (coding->makes == RT_SCALES)
                memcpy(put, &scale, sizeof scale);
            else
                put_codes(coding, value, put);
        }
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
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
    const size_t line = (size_t)(values > most.rows ? values : most.rows);
    bool made = true;
    at.value = malloc((size_t)values * sizeof(float) + line * (sizeof(float) + 8));
    if (!at.value) return rt_refuse_memory(why, (size_t)values * sizeof(float));
    at.line = at.value + values;
    at.buffer = (unsigned char *)(at.line + line);
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
