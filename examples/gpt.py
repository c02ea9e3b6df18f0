"""GPT-2 and its relatives: any number of layers, heads and widths.

    tutti train examples/gpt.py --text=shakespeare.txt --preset=character --out=runs/a
    tutti train examples/gpt.py --help

Weights are called as in the published files ("h.0.attn.c_attn.weight"), so those can be read.
examples/gpt.cc is the same model in C++, and its training has the same bits.
"""

import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import tutti
from tutti import nn


@dataclass
class ModelConfig:
    layers: int = 12
    heads: int = 12
    key_heads: int | None = None  # fewer than heads: each is shared by a group of queries
    width: int = 768
    context: int = 1024  # the longest sequence; 0: as long as those of the run
    vocabulary: int = 50257  # tokens there are; 0: as many as the text has, or GPT-2
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

# nanoGPT's settings for a small text on a small machine, with twice its rate, which is better.
PRESETS["character"] = {
    "model.layers": 4,
    "model.heads": 4,
    "model.width": 128,
    "model.bias": False,
    "optim.rate.rate": 2e-3,
    "optim.rate.least": 1e-4,
    "optim.rate.warm_up": 100,
    "optim.beta2": 0.99,
    "steps": 2000,
    "batch": 12,
    "context": 64,
}

DEVIATION = 0.02


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        heads, key_heads = config.heads, config.key_heads or config.heads
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


def _check(config: ModelConfig) -> None:
    for key in ("layers", "heads", "width", "context", "vocabulary"):
        if getattr(config, key) < 1:
            raise tutti.Error(f"model.{key} is {getattr(config, key)}; use 1 or more", "invalid")
    heads, key_heads = config.heads, config.heads if config.key_heads is None else config.key_heads
    if config.width % heads or key_heads < 1 or heads % key_heads:
        raise tutti.Error(
            f"a model.width of {config.width} with {heads} heads and {key_heads} key_heads: each"
            " has to be a multiple of the next",
            "invalid",
        )


class GPT(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        _check(config)
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


@dataclass
class Optim:
    """AdamW."""

    rate: tutti.optim.Schedule = field(
        default_factory=lambda: tutti.optim.cosine(6e-4, least=6e-5, warm_up=100)
    )
    beta1: float = 0.9
    beta2: float = 0.95
    decay: float = 0.1
    max_norm: float = 1.0  # gradients longer than this are scaled down to it; 0: never


@dataclass
class Config(tutti.Run):
    text: Path | None = None  # learn from this text …
    tokenizer: str = "char"  # … as char, byte, bpe:FILE or bpe:N tokens
    train: Path | None = None  # or from this file of tokens, model.vocabulary of them, …
    validation: Path | None = None  # … held against this one
    model: ModelConfig = field(default_factory=lambda: ModelConfig(context=0, vocabulary=0))
    optim: Optim = field(default_factory=Optim)


def load_data(config: Config) -> tutti.data.Data:
    if config.text is not None:
        for key in ("train", "validation"):
            if getattr(config, key) is not None:
                raise tutti.Error(f"learn from --text or from --{key}, not from both", "invalid")
        return tutti.data.text(config.text, tokenizer=config.tokenizer)
    if config.train is None:
        raise tutti.Error("say what to learn from: --text=FILE or --train=TOKENS", "invalid")
    vocabulary = config.model.vocabulary or ModelConfig.vocabulary
    return tutti.data.tokens(config.train, config.validation, vocabulary=vocabulary)


def fitted(model: ModelConfig, data: tutti.data.Data, context: int) -> ModelConfig:
    """The model for these data: what was not said follows from them, what was said has to fit."""
    if model.vocabulary not in (0, data.vocabulary):
        raise tutti.Error(
            f"model.vocabulary is {model.vocabulary}, and these data have {data.vocabulary} tokens:"
            " leave it out, or choose another tokenizer",
            "invalid",
        )
    if 0 < model.context < context:
        raise tutti.Error(
            f"model.context is {model.context}, and the run has sequences of {context}: leave it"
            f" out, or use --context={model.context}",
            "invalid",
        )
    return replace(model, vocabulary=data.vocabulary, context=model.context or context)


def main() -> None:
    config = tutti.configure(Config, presets=PRESETS)
    try:
        data = load_data(config)
        config = replace(config, model=fitted(config.model, data, config.context))
        made = config.optim
        optim = tutti.optim.AdamW(
            made.rate,
            betas=(made.beta1, made.beta2),
            decay=made.decay,
            max_norm=made.max_norm,
        )
        model = GPT(config.model)
        tutti.Trainer(model, data=data, optim=optim, run=config).fit()
    except tutti.Error as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


if __name__ == "__main__":
    main()
