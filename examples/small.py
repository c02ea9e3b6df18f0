"""A model small enough to read all that the compiler makes of it: docs/compiler.md does.

tutti ir --after fuse examples/small.py
"""

import tutti
from tutti import nn


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm = nn.RMSNorm(embed=4)
        self.up = nn.Linear({"embed": 4}, {"hidden": 8}, bias=False)
        self.down = nn.Linear({"hidden": 8}, {"embed": 4}, bias=False)

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return x + self.down(nn.gelu(self.up(self.norm(x))))


class Small(nn.Module):
    def __init__(self) -> None:
        self.words = nn.Embedding(vocab=5, embed=4)
        self.blocks = nn.Layers(2, Block())

    def __call__(self, tokens: nn.Tensor, targets: nn.Tensor) -> nn.Tensor:
        x = self.blocks(self.words(tokens))
        return nn.cross_entropy(x, self.words.weight, targets, over="embed").mean()


def main() -> None:
    data = tutti.data.numbers((place * place % 5 for place in range(100)), vocabulary=5)
    tutti.Trainer(Small(), data=data, steps=10, batch=2, context=3).fit()


if __name__ == "__main__":
    main()
