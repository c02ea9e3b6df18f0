"""PyTorch's losses from given weights on given tokens, for bench_losses.

usage: torch_losses.py WEIGHTS TOKENS STEPS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH

WEIGHTS is a safetensors file as tutti.Trainer writes it, TOKENS the numbers as JSON. Sample s of
step t is window t * BATCH + s. Prints the losses as JSON.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

steps, layers, width, heads, context, vocabulary, batch = map(int, sys.argv[3:10])
torch.set_num_threads(2)


def load(path: str) -> dict[str, torch.Tensor]:
    whole = Path(path).read_bytes()
    length = int.from_bytes(whole[:8], "little")
    found = {}
    for name, its in json.loads(whole[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = its["data_offsets"]
        part = bytearray(whole[8 + length + begin : 8 + length + end])
        found[name] = torch.frombuffer(part, dtype=torch.float32).view(its["shape"])
        found[name] = found[name].clone().requires_grad_()
    return found


weights = load(sys.argv[1])
tokens = torch.tensor(json.loads(Path(sys.argv[2]).read_text()))
optimizer = torch.optim.AdamW(
    [
        {"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": 0.1},
        {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0},
    ],
    lr=1e-3,
    betas=(0.9, 0.95),
    eps=1e-8,
)


def loss_of(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    x = weights["wte.weight"][given] + weights["wpe.weight"]
    for layer in range(layers):
        own = lambda name, layer=layer: weights[f"h.{layer}.{name}.weight"]  # noqa: E731
        y = F.layer_norm(x, (width,), own("ln_1")) @ own("attn.c_attn")
        q, k, v = (
            part.view(batch, context, heads, -1).transpose(1, 2) for part in y.split(width, 2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + mixed.reshape(batch, context, width) @ own("attn.c_proj")
        hidden = F.gelu(F.layer_norm(x, (width,), own("ln_2")) @ own("mlp.c_fc"))
        x = x + hidden @ own("mlp.c_proj")
    logits = F.layer_norm(x, (width,), weights["ln_f.weight"]) @ weights["wte.weight"].T
    return F.cross_entropy(logits.view(-1, vocabulary), wanted.view(-1))


losses = []
for step in range(steps):
    starts = torch.arange(step * batch, (step + 1) * batch) * context
    places = starts[:, None] + torch.arange(context)
    loss = loss_of(tokens[places], tokens[places + 1])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps(losses))
