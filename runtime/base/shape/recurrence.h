/* Recurrent cells: what the compiler and the kernels of operators Recurrence and RecurrenceGrad share. */
#ifndef RT_BASE_RECURRENCE_H
#define RT_BASE_RECURRENCE_H

#include "panel.h"

#include <stdint.h>

/* X(ID, name, gates, states): the number of gates and of states (LSTM: hidden and cell state). */
#define RT_CELLS(X)                                                                                                    \
    X(LSTM, "lstm", 4, 2)                                                                                              \
    X(GRU, "gru", 3, 1)                                                                                                \
    X(RNN, "rnn", 1, 1)

enum rt_cell {
#define RT_CELL(id, name, gates, states) RT_CELL_##id,
    RT_CELLS(RT_CELL)
#undef RT_CELL
};

/* X(ID, name, has_alpha, alpha, has_beta, beta): ONNX's activation functions of recurrent operators, in lower case,
 * with the defaults of their parameters. */
#define RT_GATES(X)                                                                                                    \
    X(NONE, "none", 0, 0, 0, 0)                                                                                        \
    X(SIGMOID, "sigmoid", 0, 0, 0, 0)                                                                                  \
    X(TANH, "tanh", 0, 0, 0, 0)                                                                                        \
    X(RELU, "relu", 0, 0, 0, 0)                                                                                        \
    X(AFFINE, "affine", 1, 1, 1, 0)                                                                                    \
    X(LEAKYRELU, "leakyrelu", 1, 0.01, 0, 0)                                                                           \
    X(THRESHOLDEDRELU, "thresholdedrelu", 1, 1, 0, 0)                                                                  \
    X(SCALEDTANH, "scaledtanh", 1, 1, 1, 1)                                                                            \
    X(HARDSIGMOID, "hardsigmoid", 1, 0.2, 1, 0.5)                                                                      \
    X(ELU, "elu", 1, 1, 0, 0)                                                                                          \
    X(SOFTSIGN, "softsign", 0, 0, 0, 0)                                                                                \
    X(SOFTPLUS, "softplus", 0, 0, 0, 0)

enum rt_gate_function {
#define RT_GATE(id, ...) RT_GATE_##id,
    RT_GATES(RT_GATE)
#undef RT_GATE
};

struct rt_gate {
    enum rt_gate_function function;
    double alpha, beta;
};

/* One direction of a recurrent layer over t steps of b sequences, with h hidden units. */
struct rt_recurrence {
    enum rt_cell cell;
    int64_t t, b, h;
    int reverse;                            /* from the last step to the first */
    int reset_after;                        /* GRU: the reset gate multiplies the product (linear_before_reset) */
    int coupled;                            /* LSTM: the forget gate is 1 - the input gate (input_forget) */
    double clip;                            /* bound of what activation functions are applied to; 0: none */
    struct rt_gate gate, candidate, output; /* LSTM: f, g, h; GRU: f, g; RNN: f is `gate` */
};

static inline int64_t rt_cell_gates(enum rt_cell cell) {
    static const int64_t gates[] = {
#define RT_CELL(id, name, gates, states) gates,
        RT_CELLS(RT_CELL)
#undef RT_CELL
    };
    return gates[cell];
}

static inline int64_t rt_cell_states(enum rt_cell cell) {
    static const int64_t states[] = {
#define RT_CELL(id, name, gates, states) states,
        RT_CELLS(RT_CELL)
#undef RT_CELL
    };
    return states[cell];
}

/* Workspace of a layer: a step's gates, and so many states of b h elements. */
#define RT_RECURRENCE_STATES 2

/* Elements of the recurrent weights (gates h,h), every gate packed (Note [Panels] in panel.h). */
static inline int64_t rt_recurrence_packed(int64_t gates, int64_t h) {
    return gates * rt_panel_elements(h, h);
}

#endif
