/* The graphs of operations of the library that stands in for cuDNN: they are taken as their descriptors say, and
 * computed one operation after the other, each as the library's manual defines it, every result rounded to the type of
 * its tensor. So a graph that is not what it should be gives other numbers. Of the configurations that are proposed the
 * first gives other bits at every run, the second wants more workspace than there is, the third turns out not to be for
 * this graph, and the fourth is the one to be used. It spoils the workspace that it asks for, which is what cuDNN 9.19
 * wants on sm_90. Heads whose size is not a multiple of 8 are refused. */
#include "stand_in_cudnn.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace {

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<unsigned char> bytes;
};

struct node;
typedef std::vector<node> graph;

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finished = false;
    int number = 0;                    /* of a configuration, its engine and its plan */
    std::shared_ptr<const graph> what; /* that they compute */
    std::map<int, attribute> attributes;

    bool has(int name) const { return attributes.count(name) != 0; }
    template <class T> std::vector<T> all(int name) const {
        if (!has(name)) complain("a descriptor that lacks an attribute");
        const attribute &found = attributes.at(name);
        std::vector<T> values((size_t)found.count);
        if (found.bytes.size() != values.size() * sizeof(T)) complain("an attribute of another type");
        for (size_t i = 0; i < values.size(); i++) memcpy(&values[i], found.bytes.data() + i * sizeof(T), sizeof(T));
        return values;
    }
    template <class T> T one(int name) const {
        const std::vector<T> values = all<T>(name);
        if (values.size() != 1) complain("an attribute of another count");
        return values[0];
    }
    const descriptor *at(int name) const {
        const descriptor *found = one<const descriptor *>(name);
        if (!found || !found->finished) complain("a descriptor that is not finished");
        return found;
    }
};

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int);
    }
}

/* --- Tensors --- */

struct index {
    int64_t at[4];
};

struct tensor {
    int64_t id, dims[4], strides[4];
    cudnnDataType_t type;
    bool passing, number;

    int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    index place(int64_t i) const {
        index found;
        for (int d = 3; d >= 0; i /= dims[d], d--) found.at[d] = i % dims[d];
        return found;
    }
    int64_t offset(const index &i) const {
        return i.at[0] * strides[0] + i.at[1] * strides[1] + i.at[2] * strides[2] + i.at[3] * strides[3];
    }
};

tensor tensor_of(const descriptor *made) {
    tensor t;
    const std::vector<int64_t> dims = made->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                               strides = made->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    if (dims.size() != 4 || strides.size() != 4) complain("dimensions");
    for (size_t d = 0; d < 4; d++) t.dims[d] = dims[d], t.strides[d] = strides[d];
    t.id = made->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = made->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.passing = made->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
    t.number = made->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0;
    return t;
}

float wide(uint16_t bits) {
    const uint32_t all = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &all, sizeof value);
    return value;
}
uint16_t narrow(float value) {
    uint32_t all;
    memcpy(&all, &value, sizeof all);
    return std::isnan(value) ? (uint16_t)0x7fff : (uint16_t)((all + 0x7fff + (all >> 16 & 1)) >> 16);
}

double load(cudnnDataType_t type, const void *at, int64_t i) {
    switch (type) {
    case CUDNN_DATA_FLOAT: return ((const float *)at)[i];
    case CUDNN_DATA_INT32: return ((const int32_t *)at)[i];
    case CUDNN_DATA_BFLOAT16: return wide(((const uint16_t *)at)[i]);
    case CUDNN_DATA_HALF: return (double)((const _Float16 *)at)[i];
    default: complain("a type in memory");
    }
}
void store(cudnnDataType_t type, void *at, int64_t i, double value) {
    switch (type) {
    case CUDNN_DATA_FLOAT: ((float *)at)[i] = (float)value; return;
    case CUDNN_DATA_BFLOAT16: ((uint16_t *)at)[i] = narrow((float)value); return;
    case CUDNN_DATA_HALF: ((_Float16 *)at)[i] = (_Float16)(float)value; return;
    default: complain("a type of a result");
    }
}
double rounded(cudnnDataType_t type, double value) {
    switch (type) {
    case CUDNN_DATA_FLOAT: return (float)value;
    case CUDNN_DATA_BFLOAT16: return wide(narrow((float)value));
    case CUDNN_DATA_HALF: return (double)(_Float16)(float)value;
    default: return value;
    }
}

/* --- Operations --- */

struct node {
    cudnnBackendDescriptorType_t type;
    int mode = 0, axis = -1;
    std::vector<tensor> inputs;
    tensor y;
};

/* Elements in row-major order, by a tensor's number. */
typedef std::map<int64_t, std::vector<double>> values;

/* The element of `of` that goes with an element of `with`: dimensions are repeated, as heads are shared by
 * neighbours. */
int64_t beside(const tensor &of, const tensor &with, const index &i, int dims = 4) {
    int64_t found = 0;
    for (int d = 0; d < dims; d++) {
        if (with.dims[d] % of.dims[d]) complain("extents");
        found = found * of.dims[d] + i.at[d] / (with.dims[d] / of.dims[d]);
    }
    return found;
}

void matmul(const node &n, const values &known, std::vector<double> &y) {
    const tensor &a = n.inputs[0], &b = n.inputs[1];
    const int64_t depth = a.dims[3];
    if (b.dims[2] != depth || a.dims[2] != n.y.dims[2] || b.dims[3] != n.y.dims[3] || a.dims[1] != n.y.dims[1])
        complain("extents of a product");
    if (a.type != b.type) complain("types of a product");
    for (int64_t i = 0; i < n.y.count(); i++) {
        const index at = n.y.place(i);
        const double *line = known.at(a.id).data() + (beside(a, n.y, at, 2) * a.dims[2] + at.at[2]) * depth;
        const double *column = known.at(b.id).data() + beside(b, n.y, at, 2) * depth * b.dims[3] + at.at[3];
        double sum = 0;
        for (int64_t k = 0; k < depth; k++) sum += line[k] * column[k * b.dims[3]];
        y[(size_t)i] = sum;
    }
}

double point(int mode, const double *x) {
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x[0] + x[1];
    case CUDNN_POINTWISE_SUB: return x[0] - x[1];
    case CUDNN_POINTWISE_MUL: return x[0] * x[1];
    case CUDNN_POINTWISE_DIV: return x[0] / x[1];
    case CUDNN_POINTWISE_IDENTITY: return x[0];
    case CUDNN_POINTWISE_EXP: return std::exp(x[0]);
    case CUDNN_POINTWISE_CMP_GE: return x[0] >= x[1];
    case CUDNN_POINTWISE_BINARY_SELECT: return x[2] != 0 ? x[0] : x[1];
    default: complain("a mode of a pointwise operation");
    }
}

void pointwise(const node &n, const values &known, std::vector<double> &y) {
    if (n.mode == CUDNN_POINTWISE_GEN_INDEX && n.axis < 0) complain("an index along no axis");
    for (int64_t i = 0; i < n.y.count(); i++) {
        const index at = n.y.place(i);
        double x[3];
        for (size_t k = 0; k < n.inputs.size(); k++)
            x[k] = known.at(n.inputs[k].id)[(size_t)beside(n.inputs[k], n.y, at)];
        y[(size_t)i] = n.mode == CUDNN_POINTWISE_GEN_INDEX ? (double)at.at[n.axis] : point(n.mode, x);
    }
}

void reduce(const node &n, const values &known, std::vector<double> &y) {
    const bool most = n.mode == CUDNN_REDUCE_TENSOR_MAX;
    if (!most && n.mode != CUDNN_REDUCE_TENSOR_ADD) complain("a mode of a reduction");
    y.assign(y.size(), most ? -INFINITY : 0);
    for (int64_t i = 0; i < n.inputs[0].count(); i++) {
        const double x = known.at(n.inputs[0].id)[(size_t)i];
        double &to = y[(size_t)beside(n.y, n.inputs[0], n.inputs[0].place(i))];
        to = !most ? to + x : x > to || std::isnan(x) ? x : to;
    }
}

/* The same memory, as another tensor. */
void reshape(const node &n, const values &known, std::vector<double> &y) {
    const tensor &x = n.inputs[0];
    std::map<int64_t, double> memory;
    if (x.count() != n.y.count()) complain("a reshape to other counts");
    for (int64_t i = 0; i < x.count(); i++) memory[x.offset(x.place(i))] = known.at(x.id)[(size_t)i];
    for (int64_t i = 0; i < x.count(); i++) y[(size_t)i] = memory.at(n.y.offset(n.y.place(i)));
}

const struct kind {
    cudnnBackendDescriptorType_t type;
    int settings, mode, inputs[3], y;
    void (*compute)(const node &n, const values &known, std::vector<double> &y);
} kinds[] = {
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_MATMUL_DESC,
     -1,
     {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1},
     CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     matmul},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_ATTR_POINTWISE_MODE,
     {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     pointwise},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     CUDNN_ATTR_REDUCTION_OPERATOR,
     {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1},
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
     reduce},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
     -1,
     -1,
     {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, -1, -1},
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
     reshape},
};

const kind &kind_of(cudnnBackendDescriptorType_t type) {
    for (const kind &k : kinds)
        if (k.type == type) return k;
    complain("an operation");
}

node node_of(const descriptor *made) {
    const kind &k = kind_of(made->type);
    node n = {made->type, 0, -1, {}, tensor_of(made->at(k.y))};
    for (int input : k.inputs)
        if (input >= 0 && made->has(input)) n.inputs.push_back(tensor_of(made->at(input)));
    if (k.mode >= 0) n.mode = made->at(k.settings)->one<int>(k.mode);
    if (k.settings >= 0 && made->at(k.settings)->has(CUDNN_ATTR_POINTWISE_AXIS))
        n.axis = (int)made->at(k.settings)->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    return n;
}

/* --- Graphs --- */

graph graph_of(const descriptor *made) {
    graph found;
    for (const descriptor *operation : made->all<const descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        if (!operation->finished) complain("an operation that is not finished");
        found.push_back(node_of(operation));
    }
    return found;
}

bool multiplies_odd_heads(const graph &g) {
    for (const node &n : g)
        for (const tensor &t : n.inputs)
            if (n.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !t.passing &&
                (t.strides[3] == 1 ? t.dims[3] : t.dims[2]) % 8)
                return true;
    return false;
}

/* True if dq is added up in memory, and converted then. */
bool adds_up(const graph &g) {
    for (const node &n : g)
        if (n.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && n.mode == CUDNN_POINTWISE_IDENTITY) return true;
    return false;
}

/* What a gradient keeps: a deterministic one how scores change, and where heads are shared a part of dk and dv for
 * each. */
int64_t workspace_of(const graph &g) {
    int64_t bytes = 256;
    for (const node &n : g) {
        const auto tiles = [](int64_t lines) { return (lines + 127) / 128 * 128; };
        if (n.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR && n.inputs[0].passing && bytes == 256 && !adds_up(g))
            bytes += n.y.dims[0] * n.y.dims[1] * tiles(n.y.dims[2]) * tiles(n.y.dims[3]) * 2;
        if (n.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR && n.inputs[0].dims[1] != n.y.dims[1])
            bytes += n.inputs[0].dims[0] * n.inputs[0].dims[1] * tiles(n.inputs[0].dims[2]) * n.inputs[0].dims[3] * 2;
    }
    return bytes;
}

struct places {
    std::map<int64_t, void *> memory;
    std::map<int64_t, double> numbers;
    void *workspace;
};

const std::vector<double> &bring(const tensor &t, const places &at, values &known) {
    std::vector<double> &found = known[t.id];
    if (!found.empty()) return found;
    found.resize((size_t)t.count());
    if (t.number) return found[0] = at.numbers.at(t.id), found;
    if (!at.memory.count(t.id)) complain("a tensor that nothing makes");
    for (int64_t i = 0; i < t.count(); i++) found[(size_t)i] = load(t.type, at.memory.at(t.id), t.offset(t.place(i)));
    return found;
}

bool is_made(const graph &g, const values &known, int64_t id) {
    for (const node &n : g)
        if (n.y.id == id) return known.count(id) != 0;
    return true;
}

void compute(const node &n, const places &at, values &known) {
    for (const tensor &t : n.inputs) bring(t, at, known);
    std::vector<double> y((size_t)n.y.count());
    kind_of(n.type).compute(n, known, y);
    for (double &value : y) value = rounded(n.y.type, value);
    known[n.y.id] = y;
    for (int64_t i = 0; i < n.y.count() && !n.y.passing; i++)
        store(n.y.type, at.memory.at(n.y.id), n.y.offset(n.y.place(i)), y[(size_t)i]);
}

/* Operations in whatever order they are listed. */
void run(const graph &g, const places &at) {
    values known;
    memset(at.workspace, 0x77, (size_t)workspace_of(g));
    for (size_t left = g.size(), before = 0; left != before;) {
        before = left;
        for (const node &n : g) {
            bool ready = !known.count(n.y.id);
            for (const tensor &t : n.inputs) ready = ready && is_made(g, known, t.id);
            if (ready) compute(n, at, known), left--;
        }
        if (left == 0) return;
    }
    complain("operations that wait for each other");
}

} /* namespace */

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    descriptor *made = new descriptor();
    made->type = type;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t made) {
    delete (descriptor *)made;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    const unsigned char *bytes = (const unsigned char *)values;
    if (((descriptor *)of)->finished) complain("an attribute of what is finished");
    ((descriptor *)of)->attributes[name] = {type, count, {bytes, bytes + (size_t)count * size_of(type)}};
    return CUDNN_STATUS_SUCCESS;
}

enum { REPEATS_NOT, WANTS_MUCH, REFUSES, SERVES, PROPOSED };

/* How a descriptor that the library fills comes to be that configuration. */
static void become(descriptor *made, const descriptor *of, int number) {
    made->number = number;
    made->what = of->what;
    made->finished = true;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t out) {
    descriptor *made = (descriptor *)out;
    if (made->finished) complain("what is finished finished again");
    if (made->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        made->at(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
        made->what = std::make_shared<const graph>(graph_of(made->at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)));
    }
    if (made->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const descriptor *configuration = made->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        made->at(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
        if (configuration->number == REFUSES) return CUDNN_STATUS_NOT_SUPPORTED;
        become(made, configuration, configuration->number);
    }
    made->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t room, int64_t *count, void *values) {
    const descriptor *of = (const descriptor *)from;
    if (!of->finished) complain("an attribute asked of what is not finished");
    descriptor **into = (descriptor **)values;
    *count = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        if (room < PROPOSED) complain("no room for what is proposed");
        *count = multiplies_odd_heads(*of->what) ? 0 : (int64_t)PROPOSED;
        for (int i = 0; i < *count; i++) become(into[i], of, i);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE: return become(into[0], of, of->number), CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *(cudnnBackendNumericalNote_t *)values =
            of->number == REPEATS_NOT ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = of->number == WANTS_MUCH ? (int64_t)1 << 50 : workspace_of(*of->what);
        return CUDNN_STATUS_SUCCESS;
    default: complain("an attribute that is asked for");
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t made, cudnnBackendDescriptor_t pack) {
    const descriptor *plan = (const descriptor *)made, *given = (const descriptor *)pack;
    const std::vector<int64_t> ids = given->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const std::vector<void *> memory = given->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    places at = {{}, {}, given->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)};
    if (!plan->finished || !given->finished || plan->number != SERVES || ids.size() != memory.size())
        complain("a plan that is not one");
    if (!handle->stream) complain("no stream");
    for (size_t i = 0; i < ids.size(); i++) at.memory[ids[i]] = memory[i];
    for (const node &n : *plan->what) /* numbers are taken now, memory is looked at when it is its turn */
        for (const tensor &t : n.inputs)
            if (t.number) at.numbers[t.id] = load(t.type, at.memory.at(t.id), 0);
    log_call("graph");
    handle->stream->submit([what = plan->what, at] { return run(*what, at), true; });
    return CUDNN_STATUS_SUCCESS;
}

} /* extern "C" */
