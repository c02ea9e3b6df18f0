"""GPT-2 and its relatives: any number of layers, heads and widths.

Weights are called as in the published files ("h.0.attn.c_attn.weight"), so those can be read.
examples/gpt.cc is the same model in C++.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tutti import nn


@dataclass
class ModelConfig:
    layers: int = 12
    heads: int = 12
    key_heads: int | None = None  # fewer than heads: each is shared by a group of queries
    width: int = 768
    context: int = 1024  # the longest sequence
    vocabulary: int = 50257
    bias: bool = True  # of linear layers and norms
    dropout: float = 0.0
    tied: bool = True  # the head uses the weights of the token embedding
    activation: Literal["gelu", "gelu_tanh"] = "gelu_tanh"


PRESETS = {
    "gpt2": {"model.layers": 12, "model.heads": 12, "model.width": 768},
    "gpt2-medium": {"model.layers": 24, "model.heads": 16, "model.width": 1024},
    "gpt2-large": {"model.layers": 36, "model.heads": 20, "model.width": 1280},
    "gpt2-xl": {"model.layers": 48, "model.heads": 25, "model.width": 1600},
}

DEVIATION = 0.02


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        heads, key_heads = config.heads, config.key_heads or config.heads
        if config.width % heads or heads % key_heads:
            raise ValueError(f"{config}: width has to divide by heads, and these by key_heads")
        self.size = config.width // heads
        self.key_heads = key_heads
        # Without grouping there is no such dimension.
        self.queries = {"heads": key_heads, "group": heads // key_heads}
        if key_heads == heads:
            del self.queries["group"]
        qkv = (heads + 2 * key_heads) * self.size
        self.c_attn = nn.Linear({"embed": config.width}, {"qkv": qkv}, bias=config.bias)
        self.c_proj = nn.Linear(
            {"mixed": config.width},
            {"embed": config.width},
            bias=config.bias,
            init=nn.normal(DEVIATION / math.sqrt(2 * config.layers)),
        )

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        qkv = self.c_attn(x)
        queries = math.prod(self.queries.values()) * self.size
        keys = self.key_heads * self.size
        q = qkv.slice("qkv", 0, queries).split("qkv", **self.queries, head=self.size)
        k, v = (
            qkv.slice("qkv", start, start + keys).split("qkv", heads=self.key_heads, head=self.size)
            for start in (queries, queries + keys)
        )
        mixed = nn.attention(q, k, v, causal=True)
        return self.c_proj(mixed.merge(*self.queries, "head", into="mixed"))


class MLP(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        hidden = {"hidden": 4 * config.width}
        self.c_fc = nn.Linear({"embed": config.width}, hidden, bias=config.bias)
        self.c_proj = nn.Linear(
            hidden,
            {"embed": config.width},
            bias=config.bias,
            init=nn.normal(DEVIATION / math.sqrt(2 * config.layers)),
        )
        self.by_tanh = config.activation == "gelu_tanh"

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return self.c_proj(nn.gelu(self.c_fc(x), approximate=self.by_tanh))


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        self.ln_1 = nn.LayerNorm(embed=config.width, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(embed=config.width, bias=config.bias)
        self.mlp = MLP(config)
        self.drop = nn.Dropout(config.dropout)

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        self.wte = nn.Embedding(vocab=config.vocabulary, embed=config.width)
        self.wpe = nn.Embedding(place=config.context, embed=config.width)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.Layers(config.layers, Block(config))
        self.ln_f = nn.LayerNorm(embed=config.width, bias=config.bias)
        self.lm_head = None
        if not config.tied:
            self.lm_head = nn.Embedding(vocab=config.vocabulary, embed=config.width)

    def features(self, tokens: nn.Tensor) -> nn.Tensor:
        x = self.wte(tokens) + self.wpe(nn.positions(tokens))
        return self.ln_f(self.h(self.drop(x)))

    def head(self) -> nn.Parameter:
        return (self.lm_head or self.wte).weight

    def logits(self, tokens: nn.Tensor) -> nn.Tensor:
        return self.features(tokens).dot(self.head(), over="embed")

    def __call__(self, tokens: nn.Tensor, targets: nn.Tensor) -> nn.Tensor:
        """The mean loss of a batch."""
        x = self.features(tokens)
        return nn.cross_entropy(x, self.head(), targets, over="embed").mean()
