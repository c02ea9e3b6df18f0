"""PyTorch as bench_train measures it: a GPT trained in fp32 with fused AdamW, a turn on demand.

A line on standard input is a number of steps; the answer is the seconds that they took. The first
answer, before any question, is the seconds of the first step, what was compiled included.

usage: torch_gpt.py eager|compile THREADS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

mode = sys.argv[1]
threads, layers, width, heads, context, vocabulary, batch = map(int, sys.argv[2:9])
torch.set_num_threads(threads)
torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (a.view(b, t, heads, c // heads).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))


model = GPT()
forward = torch.compile(model) if mode == "compile" else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
tokens, targets = (torch.randint(vocabulary, (batch, context)) for _ in range(2))


def steps(count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        float(loss)
    return time.perf_counter() - begin


print(steps(1), flush=True)
for line in sys.stdin:
    print(steps(int(line)), flush=True)
