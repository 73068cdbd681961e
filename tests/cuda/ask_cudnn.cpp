/* Asks cuDNN for plans of attention's graphs (runtime/cuda/attend_graph.cuh), for a GPU that need not be there.
 *
 *     ask_cudnn PROPERTIES < SHAPES
 *
 * PROPERTIES: the library's JSON of a GPU. A shape is a line of numbers: 0 forward, 1 backward, 2 backward and
 * atomic; batch, heads, kv, t, s, d, e,
 * causal, diagonal and the four extents of the bias, 0 without one. For each, in fp16 and in bf16, a line: the plan's
 * workspace and what the compiler plans for it, in bytes; or "refused". Exit status 77 where there is no library, or
 * one that knows no properties. */
#include "runtime/base/scratch.h"
#include "runtime/cuda/attend_graph.cuh"

#include <dlfcn.h>
#include <stdio.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

static bool load(rt_cudnn_graph_functions *functions) {
    void *library = dlopen("libcudnn.so.9", RTLD_NOW);
    if (!library) return false;
#define F(name) functions->name = (decltype(functions->name))dlsym(library, "cudnn" #name);
    RT_CUDNN_GRAPH_FUNCTIONS(F)
#undef F
    return functions->BackendCreateDescriptor != nullptr;
}

static cudnnBackendDescriptor_t properties(rt_cudnn_graph &graph, const std::string &json) {
    cudnnBackendDescriptor_t made = graph.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    graph.set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)json.size(), json.data());
    graph.finish(made);
    return made;
}

static void be_dense(rt_attend_shape &shape, rt_attend_place place, int64_t heads, int64_t lines, int64_t width) {
    shape.stride[place][0] = heads * lines * width;
    shape.stride[place][1] = lines * width;
    shape.stride[place][2] = width;
}

static void be_dense(rt_attend_shape &shape) {
    for (rt_attend_place place : {RT_ATTEND_Q, RT_ATTEND_DQ}) be_dense(shape, place, shape.heads, shape.t, shape.d);
    for (rt_attend_place place : {RT_ATTEND_Y, RT_ATTEND_DY}) be_dense(shape, place, shape.heads, shape.t, shape.e);
    for (rt_attend_place place : {RT_ATTEND_K, RT_ATTEND_DK}) be_dense(shape, place, shape.kv, shape.s, shape.d);
    for (rt_attend_place place : {RT_ATTEND_V, RT_ATTEND_DV}) be_dense(shape, place, shape.kv, shape.s, shape.e);
}

static int64_t planned(const rt_attend_shape &shape) {
    const rt_attend_size size = {shape.heads / shape.kv, shape.t, shape.s, shape.d, shape.e, shape.atomic != 0};
    const int64_t heads = shape.batch * shape.kv;
    return shape.backward ? rt_attend_bytes(&size, heads) - rt_attend_sum_bytes(&size, heads) : RT_PRODUCT_WORKSPACE;
}

int main(int argc, char **argv) {
    rt_cudnn_graph_functions functions;
    if (argc != 2 || !load(&functions)) return puts("there is no libcudnn.so.9"), 77;
    std::stringstream json;
    json << std::ifstream(argv[1]).rdbuf();
    rt_cudnn_graph empty(&functions);
    if (properties(empty, json.str()); empty.failed()) return puts("cuDNN does not take the properties"), 77;
    for (std::string line; std::getline(std::cin, line);) {
        for (cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
            rt_attend_shape shape = {};
            int way;
            std::stringstream(line) >> way >> shape.batch >> shape.heads >> shape.kv >> shape.t >> shape.s >> shape.d >>
                shape.e >> shape.causal >> shape.diagonal >> shape.bias[0] >> shape.bias[1] >> shape.bias[2] >>
                shape.bias[3];
            shape.backward = way > 0;
            shape.atomic = way > 1;
            shape.type = type;
            be_dense(shape);
            shape.scale = 0.125f;
            rt_cudnn_graph graph(&functions);
            rt_attend_describe(graph, shape);
            if (graph.make_plan(properties(graph, json.str()), INT64_MAX))
                std::cout << graph.workspace << " " << planned(shape) << std::endl;
            else
                std::cout << "refused" << std::endl;
        }
    }
    return 0;
}
