#!/usr/bin/python3
"""Records what PyTorch computes in f64 for a few f32 tensors: ./record_normalize.py > recorded_normalize.h

Needs python3-torch; the tests do not.
"""
import torch

torch.manual_seed(3)
OUTER, C, INNER = 3, 13, 2


def row(name, tensor, kind):
    """One array of C, hexadecimal so that nothing is rounded."""
    values = [{"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(str(v), v.hex()) for v in tensor.flatten().tolist()]
    lines = [", ".join(values[i:i + 4]) for i in range(0, len(values), 4)]
    print("static const %s %s[] = {\n    %s,\n};" % (kind, name, ",\n    ".join(lines)))


print("/* Written by record_normalize.py with PyTorch %s; do not edit. */" % torch.__version__)
print("/* clang-format off */")
print("enum { OUTER = %d, C = %d, INNER = %d };\n" % (OUTER, C, INNER))
x = (torch.randn(OUTER, C, INNER) * 4).float()
x[0, 2, 0] = float("-inf")  # a masked place
x[1, :, 1] = float("-inf")  # a row that is masked altogether
x[2, 5, 0] = 90.0
scale, bias = torch.randn(C).float(), torch.randn(C).float()
row("recorded_x", x, "float")
row("recorded_scale", scale, "float")
row("recorded_bias", bias, "float")
row("recorded_softmax", torch.softmax(x.double(), 1), "double")
row("recorded_log_softmax", torch.log_softmax(x.double(), 1), "double")

finite = torch.where(torch.isinf(x), torch.zeros_like(x), x)[:, :, 0].contiguous()
row("recorded_rows", finite, "float")
wide = finite.double()
row("recorded_layernorm", torch.nn.functional.layer_norm(wide, (C,), scale.double(), bias.double(), 1e-5), "double")
row("recorded_layernorm_plain", torch.nn.functional.layer_norm(wide, (C,), scale.double(), None, 1e-5), "double")
row("recorded_rmsnorm", wide * torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6) * scale.double(), "double")
