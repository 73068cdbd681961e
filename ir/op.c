#include "ir/op.h"

#include <ctype.h>
#include <string.h>

const struct op *op_find(const char *name) {
    for (int i = 0; i < NOPS; i++)
        if (strcmp(ops[i].name, name) == 0) return &ops[i];
    return NULL;
}

const struct op *op_named(const char *name) {
    const struct op *op = op_find(name);
    if (!op) BUG("no core operator '%s'", name);
    return op;
}

bool node_is_linear(const struct graph *graph, const struct node *node) {
    if (node->op->linear == LINEAR_ALL) return true;
    if (node->op->id != OP_Cast) return false;
    const enum rt_dtype from = graph->tensors.at[node->inputs[0]].dtype, to = graph->tensors.at[node->outputs[0]].dtype;
    return rt_dtype_is_float(from) && rt_dtype_is_float(to) && rt_dtype_bytes(from) < rt_dtype_bytes(to);
}

bool node_sums_input(const struct node *node, int k) {
    return k < node->ninputs - node->op->whole;
}

const struct node *made_by(const struct graph *graph, int tensor, enum op_id op) {
    const struct node *node = graph_producer(graph, tensor);
    return node && node->op->id == op ? node : NULL;
}

bool op_exchanges_last(const struct node *node) {
    int n = 0;
    const int64_t *perm = node->op->id == OP_Transpose ? attr_ints(node, "perm", &n) : NULL;
    for (int d = 0; perm && d < n; d++)
        if (perm[d] != (d < n - 2 ? d : 2 * n - 3 - d)) return false;
    return perm && n > 1;
}

enum rt_reduce op_reduction(const struct node *node) {
    const char *name = attr_text(node, "reduce", reduce_names[RT_SUM]);
    int reduce = 0;
    while (reduce + 1 < RT_REDUCES && strcmp(reduce_names[reduce], name) != 0) reduce++;
    return (enum rt_reduce)reduce;
}

int op_moved_input(const struct node *node) {
    return node->inputs[node->ninputs - 1];
}

bool op_communicates(const struct op *op) {
    return (op->kind == OP_COMM && !op->local) || op->ring;
}

int op_ring_tensors(const struct node *node, int tensors[4]) {
    const bool gradient = node->op->id == OP_RingAttentionGrad;
    for (int i = 0; i < 2; i++) {
        tensors[i] = node->inputs[1 + gradient + i];
        if (gradient) tensors[2 + i] = node->outputs[1 + i];
    }
    return gradient ? 4 : 2;
}

bool op_is_attention(const struct op *op) {
    return op->id == OP_Attention || op->id == OP_FlashAttention || op->id == OP_FlashAttentionGrad || op->ring;
}

bool op_multiplies_integers(const struct op *op) {
    return op->id == OP_IntMatMul || op->id == OP_IntConv;
}

bool op_is_of_experts(const struct op *op) {
    return op->id == OP_ExpertMatMul || op->id == OP_DequantExpertMatMul;
}

int op_epilogue_first(const struct node *node) {
    return op_multiplies_integers(node->op) ? OP_INTEGER_INPUTS : 2;
}

bool op_has_blocks(const struct op *op) {
    return op->id == OP_QuantizeBlocks || op->id == OP_DequantizeBlocks;
}

int op_query(const struct node *node) {
    return node->op->id == OP_FlashAttentionGrad || node->op->id == OP_RingAttentionGrad;
}

int op_arity(const struct op *op) {
    return (int)strcspn(op->types, "-");
}

/* The type in which sums over elements of that type are accumulated: f32 for 16-bit floats. */
enum rt_dtype op_summed_in(enum rt_dtype dtype) {
    return rt_dtypes[dtype].kind == RT_KIND_HALF ? RT_F32 : dtype;
}

enum rt_dtype op_letter_type(char letter) {
    static const struct {
        char letter;
        enum rt_dtype dtype;
    } rows[] = {{'b', RT_BOOL}, {'d', RT_F64}, {'s', RT_F32}, {'u', RT_U8}, {'l', RT_I64}, {'i', RT_I32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].letter == letter) return rows[i].dtype;
    return RT_DTYPE_NONE;
}

bool op_type_fits(char letter, enum rt_dtype dtype, enum rt_dtype *bound) {
    const enum rt_dtype only = op_letter_type(letter);
    if (only != RT_DTYPE_NONE) return dtype == only;
    switch (letter) {
    case '.':
    case 'c': return true;
    case 'w': return dtype == op_summed_in(*bound);
    case 'k':
        if (dtype == RT_I8) return *bound == RT_F32;
        /* fall through */
    case 'h': return dtype == *bound || (*bound == RT_F32 && rt_dtypes[dtype].kind == RT_KIND_HALF);
    case 'q': return dtype == RT_I8 || dtype == RT_U8;
    case 'I': return dtype == RT_I64 || dtype == RT_I32;
    case 'N':
        if (dtype == RT_BOOL || rt_dtype_is_code(dtype)) return false;
        break;
    case 'Z':
        if (!rt_dtype_is_integer(dtype) || rt_dtype_is_code(dtype)) return false;
        break;
    case 'f':
        if (!rt_dtype_is_float(dtype)) return false;
        break;
    default: break;
    }
    if (*bound == RT_DTYPE_NONE) *bound = dtype;
    return *bound == dtype;
}

static bool repeats(const char *letter) {
    return letter[letter[1] == '?' ? 2 : 1] == '*';
}

/* The letter of input `i` in column `types`; the row must have one. */
const char *op_input_letter(const struct op *op, int i) {
    const char *letter = op->types;
    for (; i > 0 && !repeats(letter); i--) letter += letter[1] == '?' ? 2 : 1;
    return letter;
}

int op_typed_input(const struct op *op) {
    int input = 0;
    for (const char *letter = op->types; *letter != '-'; letter++) {
        if (strchr("TNZf.", *letter)) return input;
        input += isalpha((unsigned char)*letter) != 0;
    }
    return 0;
}

bool op_takes(const struct op *op, enum rt_dtype dtype) {
    enum rt_dtype bound = RT_DTYPE_NONE;
    return op_type_fits(*op_input_letter(op, op_typed_input(op)), dtype, &bound);
}

/* Codes of quantised tensors are converted and moved only. A call whose name contains $T needs a kernel of its own for
 * each type. All other calls work for every type, such as those that move bytes ($B). */
bool op_has_kernel(const struct op *op, enum rt_dtype dtype) {
    if (op->variants) return op->variants >> dtype & 1;
    bool floats = dtype == RT_F32 || dtype == RT_F64, ints = dtype == RT_I64 || dtype == RT_I32;
    if (op->kind == OP_ELEMENTWISE && rt_dtype_is_code(dtype)) return op->id == OP_Cast;
    if (op->kind == OP_ELEMENTWISE || !op->call || !strstr(op->call, "_$T")) return true;
    if (rt_dtype_is_code(dtype)) return false;
    if (rt_dtypes[dtype].kind == RT_KIND_HALF) return op->halves;
    return floats || (ints && op->types[0] != 'f');
}

bool op_is_listed(const struct op *op, const enum op_id *list) {
    for (; list && *list != OP_NONE; list++)
        if (*list == op->id) return true;
    return false;
}
