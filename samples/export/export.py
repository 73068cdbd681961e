"""Exports a small PyTorch model: mlp.onnx, an input x.npy, and PyTorch's output for it, expected.npy."""
import numpy as np
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10))
model.eval()  # without dropout, and with the running statistics of batch norms

x = torch.randn(4, 16)
torch.onnx.export(model, (x,), "mlp.onnx", input_names=["x"], output_names=["y"], dynamic_shapes=({0: "batch"},),
                  verbose=False)
np.save("x.npy", x.numpy())
np.save("expected.npy", model(x).detach().numpy())
