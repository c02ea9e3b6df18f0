"""tutti.Generator and `tutti generate`: text from the folder of a run, the same as all at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tutti
from tutti import nn

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = 24
TEXT = "the cat sat on the mat; the dog sat on the log. " * 20

SCRIPT = """
import sys
from dataclasses import dataclass
import tutti
from tutti import nn

@dataclass
class Sizes:
    width: int = 16
    vocabulary: int = 20

class Block(nn.Module):
    def __init__(self, sizes):
        width = sizes.width
        self.norm = nn.LayerNorm(embed=width)
        self.qkv = nn.Linear({"embed": width}, {"qkv": 3 * width})
        self.out = nn.Linear({"mixed": width}, {"embed": width})
        self.width = width

    def __call__(self, x):
        qkv = self.qkv(self.norm(x))
        q, k, v = (
            qkv.slice("qkv", i * self.width, (i + 1) * self.width).split("qkv", heads=2, head=8)
            for i in range(3)
        )
        return x + self.out(nn.attention(q, k, v, causal=True).merge("heads", "head", into="mixed"))

class Small(nn.Module):
    def __init__(self, sizes, layers, *, context):
        self.words = nn.Embedding(vocab=sizes.vocabulary, embed=sizes.width)
        self.places = nn.Embedding(place=context, embed=sizes.width)
        self.blocks = nn.Layers(layers, Block(sizes))

    def features(self, tokens):
        return self.blocks(self.words(tokens) + self.places(nn.positions(tokens)))

    def logits(self, tokens):
        return self.features(tokens).dot(self.words.weight, over="embed")

    def __call__(self, tokens, targets):
        x = self.features(tokens)
        return nn.cross_entropy(x, self.words.weight, targets, over="embed").mean()

def main():
    text, out, context = sys.argv[1], sys.argv[2], int(sys.argv[3])
    data = tutti.data.text(text)
    model = Small(Sizes(vocabulary=data.vocabulary), 2, context=context)
    tutti.Trainer(model, data=data, optim=tutti.optim.AdamW(1e-2), steps=30, batch=4,
                  context=context, out=out, evaluate_every=0, threads=1).fit()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    (folder / "small.py").write_text(SCRIPT)
    (folder / "text").write_text(TEXT)
    out = folder / "run"
    words = [sys.executable, folder / "small.py", folder / "text", out, str(CONTEXT)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": str(ROOT / "python"), "PATH": path}


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = ROOT / "build/release/tutti"
    return subprocess.run(
        [program, "generate", *words], env=environment(), capture_output=True, text=True
    )


def test_the_likeliest_tokens_are_those_of_the_whole_sequence_at_once(run: Path) -> None:
    generator = tutti.Generator.load(run, sequences=2, threads=2)
    tokenizer = generator.tokenizer
    assert tokenizer is not None
    prompts = [list(tokenizer.encode(each)) for each in ("the cat ", "d")]
    sequences = [list(prompt) for prompt in prompts]
    for made in generator.stream(prompts, tokens=1000, temperature=0, keep=0):
        sequences[made.sequence].append(made.token)
        assert (made.ending == "context") == (len(sequences[made.sequence]) == CONTEXT + 1)

    model, context = tutti._recipe.load_recipe(run)
    assert context == CONTEXT
    whole = nn.trace(model.logits, use="evaluate", tokens=nn.i32(batch=2, time=CONTEXT))
    weights = read_safetensors(run / "weights.safetensors")
    arrays = {each.name: stacked(weights, each.name) for each in whole.parameters}
    arrays["tokens"] = np.array([each[:CONTEXT] for each in sequences], np.int32)
    likeliest = nn.Program(whole)(arrays)["logits"].argmax(axis=-1)
    for prompt, tokens, expected in zip(prompts, sequences, likeliest, strict=True):
        first = len(prompt)
        assert tokens[first:] == list(expected[first - 1 :])


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {
        name: np.frombuffer(data[slice(*each["data_offsets"])], np.float32).reshape(each["shape"])
        for name, each in header.items()
    }


def stacked(weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    if "*" not in name:
        return weights[name]
    return np.stack([weights[name.replace("*", str(layer))] for layer in range(2)])


def test_text_is_a_function_of_its_options(run: Path) -> None:
    generator = tutti.Generator.load(run)
    first = generator.text("the ", tokens=12, seed=1, temperature=2.0)
    assert len(first) == 12
    assert generator.text("the ", tokens=12, seed=1, temperature=2.0) == first
    assert generator.text("the ", tokens=12, seed=2, temperature=2.0) != first
    stopped = generator.text("the ", tokens=12, seed=1, temperature=2.0, stop=[first[4]])
    assert stopped == first[: first.index(first[4]) + 1]


def test_text_goes_on_past_the_context(run: Path) -> None:
    generator = tutti.Generator.load(run)
    whole = "a " * CONTEXT  # of which the end counts
    for keep in (None, 1, CONTEXT):
        text = generator.text(whole, tokens=4 * CONTEXT, temperature=0, keep=keep)
        assert len(text) == 4 * CONTEXT
    # All of the context taken along is the last of the text computed anew for each token.
    seen = whole + text
    for at in range(len(whole), len(seen), 17):
        assert generator.text(seen[at - CONTEXT : at], tokens=1, temperature=0) == seen[at]


def test_the_command_prints_text_as_events_too(run: Path) -> None:
    plain = command(run, "--prompt", "the cat", "--tokens", "9", "--seed", "3")
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.startswith("the cat") and len(plain.stdout) == 7 + 9 + 1
    assert "9 tokens in " in plain.stderr
    done = command(run, "--prompt", "the cat", "--tokens", "9", "--seed", "3", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["event"] for each in events] == ["token"] * 9 + ["end", "rate"]
    assert "the cat" + events[9]["text"] + "\n" == plain.stdout
    assert events[9]["ending"] == "tokens"
    numbers = ",".join(str(each["token"]) for each in events[:3])
    two = command(run, "--prompt-tokens", numbers, "--prompt-tokens", "1", "--keep", "0")
    assert two.stdout.count("---") == 4
    assert "context of 24 is full" in two.stderr


def test_what_cannot_be_generated_is_told(run: Path, tmp_path: Path) -> None:
    def error(*words: str | Path) -> str:
        done = command(*words)
        assert done.returncode != 0
        return done.stderr.strip().splitlines()[-1]

    assert error(tmp_path / "nothing").endswith("is no folder of a run")
    assert "is " in error(tmp_path) and "the folder of a run (--out)?" in error(tmp_path)
    assert "none of the" in error(run, "--prompt", "Ünknown")
    assert "room for 24 more tokens" in error(run, "--prompt", "a" * 30, "--keep", "0")
    assert error(run, "--temperature=-1").endswith("temperature -1 is not a number from 0 on")
    assert error(run, "--keep=25").endswith("25 tokens cannot be taken along in a context of 24")
    assert error(run, "--context", "99").endswith("a context of 99: this model has 1 to 24")
    assert "threads is -1, and there are" in error(run, "--threads=-1")
    assert error(run, "--seed=-1").endswith("seed is -1; use 0 to below 2^64")
    assert "tutti generate" in error(run, "--temprature", "1")
    assert command("--help").stdout.startswith("tutti generate: text from")


def test_a_script_that_trains_when_it_is_imported_is_not_run_again(tmp_path: Path) -> None:
    guard = 'if __name__ == "__main__":\n    main()\n'
    assert SCRIPT.endswith(guard)
    script, out = tmp_path / "bare.py", tmp_path / "run"
    (tmp_path / "text").write_text(TEXT)
    script.write_text(SCRIPT.removesuffix(guard) + "main()\n")
    words = [sys.executable, script, tmp_path / "text", out, str(CONTEXT)]
    subprocess.run(words, env=environment(), check=True, capture_output=True)
    code = f"""
import sys, tutti
sys.argv = ["x", {str(tmp_path / "text")!r}, {str(tmp_path / "other")!r}, "{CONTEXT}"]
for _ in range(2):
    try:
        tutti.Generator.load({str(out)!r})
    except tutti.Error as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1]
    assert lines[0].startswith(f"{script} trains while its model is only being loaded")
    assert not (tmp_path / "other").exists()


def test_tokens_that_the_model_has_not_are_refused(run: Path) -> None:
    generator = tutti.Generator.load(run)
    for prompt, words in (
        ([-1], "prompt 0 has token -1 at place 0; this model's are 0 to 14"),
        ([5, -7], "prompt 0 has token -7 at place 1"),
        ([15, 5], "prompt 0 has token 15 at place 0"),
    ):
        with pytest.raises(tutti.Error, match=words):
            list(generator.stream([prompt], tokens=3))
    assert len(list(generator.stream([[0, 5]], tokens=3))) == 3


def test_a_model_that_cannot_be_described_says_why(tmp_path: Path) -> None:
    class Inner(nn.Module):
        def __init__(self, what: object) -> None:
            self.weight = nn.parameter(n=2)

    tutti._recipe.save_recipe(Inner(object()), tmp_path, 8)
    with pytest.raises(tutti.Error, match="is not at the top of its file; make it in Python"):
        tutti.Generator.load(tmp_path)
    with pytest.raises(tutti.Error, match="Inner has no method logits"):
        tutti.Generator(Inner(1), tmp_path / "weights", context=4)
