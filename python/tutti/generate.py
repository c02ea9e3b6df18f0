"""Text from models that were trained.

    generator = tutti.Generator.load("runs/shakespeare")
    print(generator.text("ROMEO:", tokens=400, temperature=0.8, seed=1))

    for token in generator.stream([[5, 17, 3]], tokens=10):     # without a tokenizer
        print(token.token, token.ending)

docs/generation.md is the manual; `tutti generate` is this on the command line.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tutti import _core
from tutti._command import call
from tutti._error import Error
from tutti._recipe import load_recipe, refuse_while_loading
from tutti.data import Tokenizer, load_tokenizer
from tutti.nn import Module, i32, trace
from tutti.nn._program import check_threads

__all__ = ["Generator", "Piece", "Token"]

# Tokens of a prompt that are taken in at once.
_CHUNK = 64
# What the decoder of bytes puts where a character is not complete yet.
_INCOMPLETE = "\ufffd"


@dataclass(frozen=True)
class Token:
    """One more token of a sequence."""

    sequence: int
    token: int
    ending: str | None  # with the last one: "tokens", "stop" or "context", which is full


@dataclass(frozen=True)
class Piece(Token):
    """The same, with the text that it completes."""

    text: str


class Generator:
    """A model with its weights, ready to go on from prompts, ``sequences`` of them at once."""

    def __init__(
        self,
        model: Module,
        weights: str | os.PathLike[str],
        *,
        context: int,
        tokenizer: Tokenizer | None = None,
        sequences: int = 1,
        threads: int = 0,
        keep_packed: bool = False,
    ) -> None:
        """``model`` has a method ``logits(tokens)``; it sees ``context`` tokens at most.

        ``keep_packed`` takes prompts in faster, for as much memory again as the weights have.
        """
        logits = getattr(model, "logits", None)
        if not callable(logits):
            raise Error(
                f"{type(model).__name__} has no method logits(tokens) to generate with", "invalid"
            )
        for name, value in (("context", context), ("sequences", sequences)):
            if value < 1:
                raise Error(f"{name} is {value}; use 1 or more", "invalid")
        check_threads(threads)
        self.context = context
        self.sequences = sequences
        self.tokenizer = tokenizer
        chunk = min(_CHUNK, context)
        step, many = (
            trace(
                logits,
                use="generate",
                cache=(sequences, context),
                tokens=i32(batch=sequences, time=length),
            )
            for length in (1, chunk)
        )
        self._core = _core.Decoder(
            step, many, os.fspath(weights), sequences, context, chunk, threads, keep_packed
        )

    @classmethod
    def load(
        cls,
        run: str | os.PathLike[str],
        *,
        context: int | None = None,
        sequences: int = 1,
        threads: int = 0,
    ) -> "Generator":
        """The model of a run, by the folder that tutti.Trainer wrote."""
        refuse_while_loading("generates")
        folder = Path(run)
        if not folder.is_dir():
            raise Error(f"{folder} is no folder of a run", "not_found")
        model, trained = load_recipe(folder)
        if context is not None and not 1 <= context <= trained:
            raise Error(f"a context of {context}: this model has 1 to {trained}", "invalid")
        tokenizer = load_tokenizer(folder) if (folder / "tokenizer.json").exists() else None
        return cls(
            model,
            folder / "weights.safetensors",
            context=context or trained,
            tokenizer=tokenizer,
            sequences=sequences,
            threads=threads,
        )

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[int] = (),
        keep: int | None = None,
    ) -> Iterator[Token]:
        """Tokens as they come after prompts of tokens: one of each sequence, and again.

        What is drawn follows from the seed, the sequence and the position alone. Temperature 0
        takes the likeliest. When the context is full, the last ``keep`` tokens are taken in again
        (half of it if None; all of it is slow), or the sequence ends if ``keep`` is 0.
        """
        lists = [[int(each) for each in prompt] for prompt in prompts]
        if not 0 <= seed < 2**64:
            raise Error(f"seed is {seed}; use 0 to below 2^64", "invalid")
        self._core.start(lists, tokens, temperature, top_k, top_p, seed, list(stop), keep)
        while made := self._core.next():
            for each in made:
                yield Token(*each)

    def pieces(
        self, prompts: Sequence[str], *, stop: Sequence[str] = (), **options: Any
    ) -> Iterator[Piece]:
        """The same with text, of which a token may complete none."""
        tokenizer = self._tokenizer()
        words = [_Words(tokenizer) for _ in prompts]
        encoded = [list(tokenizer.encode(prompt)) for prompt in prompts]
        ends = [_only_token(tokenizer, each) for each in stop]
        for made in self.stream(encoded, stop=ends, **options):
            text = words[made.sequence].add(made.token, last=made.ending is not None)
            yield Piece(**asdict(made), text=text)

    def text(self, prompt: str, **options: Any) -> str:
        """What comes after a prompt; the options are those of stream()."""
        return "".join(piece.text for piece in self.pieces([prompt], **options))

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise Error("there is no tokenizer: give tokens (--prompt-tokens) instead", "invalid")
        return self.tokenizer


class _Words:
    """Text out of tokens as they come. How a token reads may depend on the one before it, and a
    character may need several."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._tokens: list[int] = []
        self._first = 0  # of the tokens that are looked at again
        self._told = 0  # up to here was told

    def add(self, token: int, last: bool) -> str:
        self._tokens.append(token)
        before = self._decode(self._tokens[self._first : self._told])
        now = self._decode(self._tokens[self._first :])
        if now.endswith(_INCOMPLETE) and not last:
            return ""
        self._first, self._told = self._told, len(self._tokens)
        return now[len(before) :]


def _only_token(tokenizer: Tokenizer, text: str) -> int:
    tokens = list(tokenizer.encode(text))
    if len(tokens) != 1:
        raise Error(f"{text!r} is {len(tokens)} tokens: only one can be stopped at", "invalid")
    return tokens[0]


# The command line. Its help is that of `tutti generate`.


def _numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers: 15,1036,7") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tutti generate", add_help=False)
    parser.add_argument("run")
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--prompt-file", action="append", default=[], type=Path)
    parser.add_argument("--prompt-tokens", action="append", default=[], type=_numbers)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--context", type=int)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser


def _prompts(given: argparse.Namespace) -> list[str]:
    texts = list(given.prompt)
    for file in given.prompt_file:
        try:
            texts.append(file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"{file}: {error}", "invalid") from None
    return texts


class _Printer:
    """One sequence as it comes; several one after the other, each when it is whole."""

    def __init__(self, prompts: list[str], as_json: bool) -> None:
        self._prompts = prompts
        self._json = as_json
        self._made: list[list[str]] = [[] for _ in prompts]
        self._full = False
        if len(prompts) == 1 and not as_json:
            print(prompts[0], end="", flush=True)

    def add(self, made: Token, text: str) -> None:
        place = made.sequence
        self._made[place].append(text)
        self._full |= made.ending == "context"
        if self._json:
            self._event("token", sequence=place, token=made.token, text=text)
            if made.ending is not None:
                whole = "".join(self._made[place])
                self._event("end", sequence=place, ending=made.ending, text=whole)
        elif len(self._prompts) == 1:
            print(text, end="" if made.ending is None else "\n", flush=True)
        elif made.ending is not None:
            print(f"--- {place + 1} ---\n{self._prompts[place]}{''.join(self._made[place])}")

    def rate(self, tokens: int, seconds: float, context: int) -> None:
        if self._json:
            self._event("rate", tokens=tokens, seconds=seconds)
            return
        rate = tokens / seconds
        full = f"; the context of {context} is full" if self._full else ""
        print(f"{tokens} tokens in {seconds:.2f} s: {rate:.1f} tokens/s{full}", file=sys.stderr)

    @staticmethod
    def _event(kind: str, **record: Any) -> None:
        print(json.dumps({"event": kind, **record}), flush=True)


def _run(given: argparse.Namespace) -> None:
    texts = _prompts(given)
    if texts and given.prompt_tokens:
        raise Error("give prompts as text or as tokens, not both", "invalid")
    generator = Generator.load(
        given.run,
        context=given.context,
        sequences=len(texts) or len(given.prompt_tokens) or 1,
        threads=given.threads,
    )
    if not texts and not given.prompt_tokens:
        texts = [_beginning(generator._tokenizer())]
    options = {
        key: getattr(given, key)
        for key in ("tokens", "temperature", "top_k", "top_p", "seed", "keep")
    }
    made: Iterator[Token]
    if texts:
        made = generator.pieces(texts, stop=given.stop, **options)
        printer = _Printer(texts, given.json)
    else:
        made = generator.stream(given.prompt_tokens, stop=_stops(given.stop), **options)
        shown = [" ".join(map(str, each)) for each in given.prompt_tokens]
        printer = _Printer(shown, given.json)
    count, begun = 0, time.monotonic()
    for each in made:
        printer.add(each, each.text if isinstance(each, Piece) else f" {each.token}")
        count += 1
    printer.rate(count, time.monotonic() - begun, generator.context)


def _beginning(tokenizer: Tokenizer) -> str:
    """What a text begins with if nothing is said: a new line, or whatever there is."""
    try:
        tokenizer.encode("\n")
        return "\n"
    except Error:
        return tokenizer.decode([0])


def _stops(given: list[str]) -> list[int]:
    return [number for each in given for number in _numbers(each)]


def main() -> None:
    given = _parser().parse_args()
    call("tutti generate", lambda: _run(given))


if __name__ == "__main__":
    main()
