"""GPT-2 in PyTorch with a cache of keys and values: torch_generate.py HOW WEIGHTS THREADS BATCH

HOW is "eager", or "compiled": torch.compile of the step over the whole cache, with a mask. Each
line "PROMPT TOKENS" is answered with tokens a second, from the first token to the last, and the
tokens of the first sequence.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

HEADS, PLACES = 12, 256


def load(path: str) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file; matrices turned to how F.linear likes them."""
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    made = {}
    for name, each in header.items():
        begin, end = each["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensor = flat.reshape(each["shape"])
        turned = tensor.dim() == 2 and not name.startswith("w")
        made[name] = (tensor.t() if turned else tensor).contiguous().clone()
    return made


class Gpt:
    def __init__(self, weights: dict[str, torch.Tensor], batch: int, masked: bool) -> None:
        self.w = weights
        self.layers = sum(name.endswith("attn.c_attn.weight") for name in weights)
        self.width = weights["wte.weight"].shape[1]
        self.masked = masked
        shape = (self.layers, batch, HEADS, PLACES, self.width // HEADS)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (self.width,), self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def attention(self, x: torch.Tensor, layer: int, places: torch.Tensor, seen: int):
        batch, time, _ = x.shape
        qkv = self.linear(x, f"h.{layer}.attn.c_attn").view(batch, time, 3, HEADS, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        keys, values = self.keys[layer], self.values[layer]
        if self.masked:
            keys.index_copy_(2, places, k)
            values.index_copy_(2, places, v)
            mask = torch.arange(PLACES) <= places[:, None]
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        else:
            keys[:, :, seen - time : seen] = k
            values[:, :, seen - time : seen] = v
            y = F.scaled_dot_product_attention(
                q, keys[:, :, :seen], values[:, :, :seen], is_causal=time > 1
            )
        y = y.transpose(1, 2).reshape(batch, time, self.width)
        return self.linear(y, f"h.{layer}.attn.c_proj")

    def step(self, tokens: torch.Tensor, places: torch.Tensor, seen: int) -> torch.Tensor:
        """The likeliest token after each sequence."""
        x = self.w["wte.weight"][tokens] + self.w["wpe.weight"][places]
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"h.{layer}.ln_1"), layer, places, seen)
            up = self.linear(self.norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
            x = x + self.linear(F.gelu(up, approximate="tanh"), f"h.{layer}.mlp.c_proj")
        x = self.norm(x[:, -1], "ln_f")
        return (x @ self.w["wte.weight"].t()).argmax(-1)


def prompts(batch: int, length: int) -> list[list[int]]:
    return [[(place * 31 + row * 7) % 50000 for place in range(length)] for row in range(batch)]


def main() -> None:
    how, path, threads, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    gpt = Gpt(load(path), batch, masked=how == "compiled")
    step = torch.compile(gpt.step) if how == "compiled" else gpt.step
    for line in sys.stdin:
        length, count = map(int, line.split())
        given = torch.tensor(prompts(batch, length))
        with torch.inference_mode():
            # The prompt is not compiled: it comes once.
            token = gpt.step(given, torch.arange(length), length)
            made, begun = [token], time.perf_counter()
            for place in range(length, length + count - 1):
                # The compiled step sees all places; only the mask changes.
                seen = PLACES if gpt.masked else place + 1
                token = step(token[:, None], torch.tensor([place]), seen)
                made.append(token)
            seconds = time.perf_counter() - begun
        tokens = [int(each[0]) for each in made]
        print(json.dumps([batch * (count - 1) / seconds, tokens]), flush=True)


if __name__ == "__main__":
    main()
