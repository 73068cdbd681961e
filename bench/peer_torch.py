"""A block of models.py's GPT-2 in PyTorch: attention by scaled products and softmax, the tanh GELU of torch.nn.functional."""
from torch import nn
from torch.nn import functional

LAYERS, LENGTH, WIDTH, HEADS = 12, 128, 768, 12


def peak_rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x, mask):
        heads = x.shape[:2] + (HEADS, WIDTH // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).split(WIDTH, 2))
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        mixed = (functional.softmax(scores + mask, -1) @ v).transpose(1, 2)
        return self.proj(mixed.reshape(x.shape))

    def forward(self, x, mask):
        x = x + self.attention(self.ln1(x), mask)
        return x + self.fc2(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))
