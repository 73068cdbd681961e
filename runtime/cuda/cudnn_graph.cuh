/* cuDNN operation graphs (the library's cudnn_graph.h, "Backend API") and the plans that execute them.
 *
 *     rt_cudnn_graph graph(&library);
 *     int y = graph.pointwise(CUDNN_POINTWISE_MUL, graph.values(CUDNN_DATA_FLOAT, dims), {x, factor});
 *     if (graph.make_plan(properties, most_workspace)) ... graph.execute(handle, places, workspace);
 *
 * Tensors are numbers; all have four dimensions. Errors are sticky: after the first one calls do nothing, and make_plan
 * fails. make_plan takes the properties of a GPU, which need not be present, and selects a deterministic plan. */
#ifndef RT_CUDA_CUDNN_GRAPH_CUH
#define RT_CUDA_CUDNN_GRAPH_CUH

#include <cudnn.h>

#include <initializer_list>
#include <stddef.h>
#include <stdint.h>

/* The functions of the library that graphs use; release 9.8 or newer has all of them. */
#define RT_CUDNN_GRAPH_FUNCTIONS(F)                                                                                    \
    F(BackendCreateDescriptor)                                                                                         \
    F(BackendDestroyDescriptor)                                                                                        \
    F(BackendSetAttribute)                                                                                             \
    F(BackendGetAttribute)                                                                                             \
    F(BackendFinalize)                                                                                                 \
    F(BackendExecute)

struct rt_cudnn_graph_functions {
#define F(name) decltype(&cudnn##name) name;
    RT_CUDNN_GRAPH_FUNCTIONS(F)
#undef F
};

enum { RT_CUDNN_DESCRIPTORS = 160, RT_CUDNN_TENSORS = 48, RT_CUDNN_CONFIGURATIONS = 16 };

struct rt_cudnn_extents {
    int64_t at[4];
};

/* Row-major. */
static inline rt_cudnn_extents rt_cudnn_dense(const rt_cudnn_extents &dims) {
    rt_cudnn_extents stride = {{0, 0, 0, 1}};
    for (int d = 3; d > 0; d--) stride.at[d - 1] = stride.at[d] * dims.at[d];
    return stride;
}

/* The same elements with the last two dimensions swapped. */
static inline rt_cudnn_extents rt_cudnn_turned(const rt_cudnn_extents &extents) {
    return {{extents.at[0], extents.at[1], extents.at[3], extents.at[2]}};
}

/* Storage of a tensor: memory named by execute(); virtual, between two operations; a scalar constant of the graph. */
enum rt_cudnn_home { RT_CUDNN_MEMORY, RT_CUDNN_PASSING, RT_CUDNN_NUMBER };

/* The attributes of a kind of operation; its settings are a descriptor with attributes of its own. */
struct rt_cudnn_kind {
    cudnnBackendDescriptorType_t operation, settings;
    cudnnBackendAttributeName_t has_settings, mode;
    cudnnBackendAttributeType_t mode_type; /* CUDNN_TYPE_VOID_PTR: there are no modes */
    cudnnBackendAttributeName_t precision, inputs[3], output;
};
static const rt_cudnn_kind rt_cudnn_matmul = {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                                              CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                                              CUDNN_ATTR_OPERATION_MATMUL_DESC,
                                              {},
                                              CUDNN_TYPE_VOID_PTR,
                                              CUDNN_ATTR_MATMUL_COMP_TYPE,
                                              {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                                              CUDNN_ATTR_OPERATION_MATMUL_CDESC};
static const rt_cudnn_kind rt_cudnn_pointwise = {
    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
    CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
    CUDNN_ATTR_POINTWISE_MODE,
    CUDNN_TYPE_POINTWISE_MODE,
    CUDNN_ATTR_POINTWISE_MATH_PREC,
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
static const rt_cudnn_kind rt_cudnn_reduction = {
    CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_REDUCTION_DESC,          CUDNN_ATTR_REDUCTION_OPERATOR,
    CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,           CUDNN_ATTR_REDUCTION_COMP_TYPE,
    {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},       CUDNN_ATTR_OPERATION_REDUCTION_YDESC};

union rt_cudnn_number {
    float f32;
    int32_t i32;
};

struct rt_cudnn_graph {
    const rt_cudnn_graph_functions *library;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    int64_t workspace = 0; /* bytes, of the plan */

    explicit rt_cudnn_graph(const rt_cudnn_graph_functions *functions) : library(functions) {}
    rt_cudnn_graph(const rt_cudnn_graph &) = delete;
    ~rt_cudnn_graph() {
        while (ndescriptors) library->BackendDestroyDescriptor(descriptors[--ndescriptors]);
    }

    int tensor(cudnnDataType_t type, const rt_cudnn_extents &dims, const rt_cudnn_extents &stride, rt_cudnn_home home) {
        const int64_t id = ntensors + 1, alignment = 16;
        const bool passing = home == RT_CUDNN_PASSING, number = home == RT_CUDNN_NUMBER;
        cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
        set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.at);
        set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.at);
        set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &passing);
        set(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &number);
        finish(made);
        if (failed() || ntensors == RT_CUDNN_TENSORS) return fail();
        tensors[ntensors] = made;
        homes[ntensors] = home;
        return ntensors++;
    }
    int given(cudnnDataType_t type, const rt_cudnn_extents &dims) {
        return tensor(type, dims, rt_cudnn_dense(dims), RT_CUDNN_MEMORY);
    }
    int values(cudnnDataType_t type, const rt_cudnn_extents &dims) {
        return tensor(type, dims, rt_cudnn_dense(dims), RT_CUDNN_PASSING);
    }
    int number(float value) {
        const int id = tensor(CUDNN_DATA_FLOAT, {{1, 1, 1, 1}}, {{1, 1, 1, 1}}, RT_CUDNN_NUMBER);
        if (id >= 0) numbers[id].f32 = value;
        return id;
    }
    int integer(int32_t value) {
        const int id = tensor(CUDNN_DATA_INT32, {{1, 1, 1, 1}}, {{1, 1, 1, 1}}, RT_CUDNN_NUMBER);
        if (id >= 0) numbers[id].i32 = value;
        return id;
    }

    /* Operations return the tensor of their result. c = a b over the last two dimensions; b may have fewer in the
     * second dimension. */
    int matmul(int c, int a, int b) { return operation(rt_cudnn_matmul, 0, CUDNN_DATA_FLOAT, -1, c, {a, b}); }
    int pointwise(cudnnPointwiseMode_t mode, int y, std::initializer_list<int> inputs,
                  cudnnDataType_t precision = CUDNN_DATA_FLOAT) {
        return operation(rt_cudnn_pointwise, (int)mode, precision, -1, y, inputs);
    }
    /* The index along a dimension. */
    int index(int64_t axis, int y, int x) {
        return operation(rt_cudnn_pointwise, (int)CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, y, {x});
    }
    /* Reduces over the dimensions in which y has extent 1. */
    int reduce(cudnnReduceTensorOp_t mode, int y, int x) {
        return operation(rt_cudnn_reduction, (int)mode, CUDNN_DATA_FLOAT, -1, y, {x});
    }
    /* The elements of x in the shape and order of y. */
    int reshape(int y, int x) {
        cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        link(made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
        link(made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
        return add(made, y);
    }

    /* Selects the library's first deterministic plan that fits `most` bytes of workspace; false: none. `properties`: of
     * a GPU. */
    bool make_plan(cudnnBackendDescriptor_t properties, int64_t most) {
        cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), found[RT_CUDNN_CONFIGURATIONS];
        set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, noperations, operations);
        finish(graph);
        const int64_t n = propose(graph, properties, found);
        for (int64_t i = 0; i < n && !plan; i++)
            if (repeats(found[i])) plan = plan_of(found[i], properties, most);
        return plan != nullptr;
    }

    /* places[tensor]: address, for tensors in memory; other entries are ignored. */
    cudnnStatus_t execute(cudnnHandle_t handle, void *const *places, void *room) const {
        int64_t ids[RT_CUDNN_TENSORS], n = 0;
        void *at[RT_CUDNN_TENSORS];
        for (int i = 0; i < ntensors; i++) {
            if (homes[i] == RT_CUDNN_PASSING) continue;
            at[n] = homes[i] == RT_CUDNN_NUMBER ? (void *)&numbers[i] : places[i];
            ids[n++] = i + 1;
        }
        rt_cudnn_graph call(library);
        cudnnBackendDescriptor_t pack = call.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        call.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
        call.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
        call.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &room);
        call.finish(pack);
        return call.failed() ? call.status : library->BackendExecute(handle, plan, pack);
    }

    /* Properties of the current GPU. */
    cudnnBackendDescriptor_t gpu(int32_t number) {
        cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        set(made, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &number);
        finish(made);
        return made;
    }

    /* Makes a descriptor, owned by the graph; NULL after an error. */
    cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
        if (failed() || ndescriptors == RT_CUDNN_DESCRIPTORS) return fail(), nullptr;
        cudnnBackendDescriptor_t made = nullptr;
        status = library->BackendCreateDescriptor(type, &made);
        if (!failed()) descriptors[ndescriptors++] = made;
        return made;
    }
    void set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
             const void *values) {
        if (!failed()) status = library->BackendSetAttribute(of, name, type, n, values);
    }
    void finish(cudnnBackendDescriptor_t made) {
        if (!failed()) status = library->BackendFinalize(made);
    }
    bool failed() const { return status != CUDNN_STATUS_SUCCESS; }

  private:
    cudnnBackendDescriptor_t descriptors[RT_CUDNN_DESCRIPTORS] = {}, tensors[RT_CUDNN_TENSORS] = {},
                             operations[RT_CUDNN_TENSORS] = {};
    cudnnBackendDescriptor_t plan = nullptr;
    int ndescriptors = 0, ntensors = 0, noperations = 0;
    rt_cudnn_home homes[RT_CUDNN_TENSORS] = {};
    rt_cudnn_number numbers[RT_CUDNN_TENSORS] = {};

    int fail() {
        if (!failed()) status = CUDNN_STATUS_INTERNAL_ERROR;
        return -1;
    }
    void link(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, int id) {
        if (id >= 0) set(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[id]);
    }
    int add(cudnnBackendDescriptor_t made, int y) {
        finish(made);
        if (failed() || noperations == RT_CUDNN_TENSORS) return fail();
        operations[noperations++] = made;
        return y;
    }
    int operation(const rt_cudnn_kind &kind, int mode, cudnnDataType_t precision, int64_t axis, int y,
                  std::initializer_list<int> inputs) {
        cudnnBackendDescriptor_t settings = make(kind.settings), made = make(kind.operation);
        set(settings, kind.precision, CUDNN_TYPE_DATA_TYPE, 1, &precision);
        if (kind.mode_type != CUDNN_TYPE_VOID_PTR) set(settings, kind.mode, kind.mode_type, 1, &mode);
        if (axis >= 0) set(settings, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
        finish(settings);
        set(made, kind.has_settings, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &settings);
        const cudnnBackendAttributeName_t *name = kind.inputs;
        for (int input : inputs) link(made, *name++, input);
        link(made, kind.output, y);
        return add(made, y);
    }

    /* Engine configurations, best first; returns their number. */
    int64_t propose(cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t properties,
                    cudnnBackendDescriptor_t *found) {
        const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
        int64_t n = 0;
        cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        set(made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        set(made, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
        set(made, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
        finish(made);
        for (int i = 0; i < RT_CUDNN_CONFIGURATIONS; i++) found[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!failed())
            status = library->BackendGetAttribute(made, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                  RT_CUDNN_CONFIGURATIONS, &n, found); /* at most those */
        return failed() ? 0 : n;
    }

    bool repeats(cudnnBackendDescriptor_t configuration) {
        cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
        int64_t n = 0;
        cudnnBackendDescriptor_t engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        if (failed() ||
            library->BackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                         &n, &engine) ||
            library->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes))
            return false;
        for (int64_t i = 0; i < n; i++)
            if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
        return true;
    }

    /* NULL: the engine does not support the graph, or needs more workspace. */
    cudnnBackendDescriptor_t plan_of(cudnnBackendDescriptor_t configuration, cudnnBackendDescriptor_t properties,
                                     int64_t most) {
        int64_t n = 0;
        cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
        set(made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
        if (failed() || library->BackendFinalize(made) ||
            library->BackendGetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                         &workspace))
            return nullptr;
        return workspace <= most ? made : nullptr;
    }
};

#endif
