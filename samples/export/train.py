"""Exports a small image classifier with its loss for training: net.onnx, images.npy, labels.npy, and the losses of ten
training steps in PyTorch, expected.json."""
import json

import numpy as np
import torch
from torch import nn


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels):
        return nn.functional.cross_entropy(self.model(images), labels)


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(8, 4))
loss = Loss(model).train()
labels = torch.arange(40) % 4
images = torch.randn(40, 3, 8, 8) + labels[:, None, None, None] * 0.5
np.save("images.npy", images.numpy())
np.save("labels.npy", labels.numpy())
batch = torch.export.Dim("batch")
torch.onnx.export(loss, (images[:8], labels[:8]), "net.onnx", input_names=["images", "labels"], output_names=["loss"],
                  dynamic_shapes=({0: batch}, {0: batch}), optimize=False, verbose=False)

optimizer, losses = torch.optim.SGD(loss.parameters(), lr=0.1, momentum=0.9), []
for step in range(10):
    rows = [(8 * step + i) % 40 for i in range(8)]
    optimizer.zero_grad()
    value = loss(images[rows], labels[rows])
    value.backward()
    optimizer.step()
    losses.append(value.item())
print(f"{sum(p.numel() for p in loss.parameters())} numbers in {len(list(loss.parameters()))} parameters")
json.dump(losses, open("expected.json", "w"))
