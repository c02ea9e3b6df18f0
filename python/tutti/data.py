"""What models learn from: text, or files of tokens.

    data = tutti.data.text("shakespeare.txt", tokenizer="char")       # every character a token
    data = tutti.data.text("notes.txt", tokenizer="bpe:4096")         # 4,096 tokens, learnt from it
    data = tutti.data.tokens("train.bin", "val.bin", vocabulary=50257)

Token files are mapped, not read: nanoGPT's (u16), or llm.c's (with a header; u16 or u32).
"""

import json
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutti import _core
from tutti._error import Error

__all__ = ["Data", "Tokenizer", "load_tokenizer", "numbers", "text", "tokens"]

_Path = str | os.PathLike[str]
_BYTES = 256


class Tokenizer(ABC):
    """Turns text into numbers below ``vocabulary``, and back."""

    vocabulary: int

    @abstractmethod
    def encode(self, text: str) -> "array[int]":
        """The tokens of a text."""

    @abstractmethod
    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """All that load_tokenizer() needs to make it again."""

    def save(self, path: _Path) -> None:
        Path(path).write_text(json.dumps(self.description(), ensure_ascii=False) + "\n")


class ByteTokenizer(Tokenizer):
    """Every byte of UTF-8 is a token."""

    vocabulary = _BYTES

    def encode(self, text: str) -> "array[int]":
        return array("B", text.encode())

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def description(self) -> dict[str, Any]:
        return {"kind": "byte"}


class CharTokenizer(Tokenizer):
    """Every character is a token: those that a text has, in the order of their code points."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.vocabulary = len(characters)
        self._numbers = {each: number for number, each in enumerate(characters)}

    def encode(self, text: str) -> "array[int]":
        try:
            return array("I", map(self._numbers.__getitem__, text))
        except KeyError as error:
            at = text.index(error.args[0])
            raise Error(
                f"character {error.args[0]!r} at place {at} is none of the {self.vocabulary} that"
                " this tokenizer knows",
                "invalid",
            ) from None

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.characters[token] for token in tokens)

    def description(self) -> dict[str, Any]:
        return {"kind": "char", "characters": self.characters}


class BpeTokenizer(Tokenizer):
    """Byte-level BPE, by the package ``tokenizers``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.vocabulary = inner.get_vocab_size()

    @classmethod
    def read(cls, path: _Path) -> "BpeTokenizer":
        """From a tokenizer.json: of the package, or of the folder of a run."""
        package = _tokenizers()
        if kind := _saved_kind(path):
            known = load_tokenizer(path)
            if not isinstance(known, cls):
                raise Error(
                    f"{path} is a tokenizer of kind {kind}, not BPE: give that name instead, or in"
                    f' Python tokenizer=tutti.data.load_tokenizer("{path}")',
                    "invalid",
                )
            return known
        try:
            return cls(package.Tokenizer.from_file(str(path)))
        except Exception as error:  # it raises nothing more precise
            raise Error(f"{path}: no tokenizer.json: {error}", "invalid") from None

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> "BpeTokenizer":
        """Learns the tokens that shorten these texts most."""
        package = _tokenizers()
        if vocabulary < _BYTES:
            raise Error(f"bpe:{vocabulary} is too few: bytes alone are {_BYTES}", "invalid")
        inner = package.Tokenizer(package.models.BPE())
        level = package.pre_tokenizers.ByteLevel
        inner.pre_tokenizer = level(add_prefix_space=False)
        inner.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=vocabulary, initial_alphabet=sorted(level.alphabet()), show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    def encode(self, text: str) -> "array[int]":
        return array("I", self._inner.encode(text).ids)

    def decode(self, tokens: Iterable[int]) -> str:
        return self._inner.decode(list(tokens))

    def description(self) -> dict[str, Any]:
        return {"kind": "bpe", "tokenizer": json.loads(self._inner.to_str())}


def load_tokenizer(path: _Path) -> Tokenizer:
    """One that was saved, or the one in the folder of a run."""
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    try:
        made = json.loads(file.read_text())
    except OSError as error:
        raise Error(f"{file}: {error.strerror}", "not_found") from None
    except ValueError as error:
        raise Error(f"{file}: {error}", "corrupt") from None
    kind = made.get("kind") if isinstance(made, dict) else None
    if kind == "byte":
        return ByteTokenizer()
    if kind == "char" and isinstance(made.get("characters"), str):
        return CharTokenizer(made["characters"])
    if kind == "bpe":
        return BpeTokenizer(_tokenizers().Tokenizer.from_str(json.dumps(made["tokenizer"])))
    raise Error(f"{file}: no tokenizer that tutti.data saved", "corrupt")


def _saved_kind(path: _Path) -> str | None:
    """Of a file that Tokenizer.save() wrote; None of any other."""
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        made = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    kind = made.get("kind") if isinstance(made, dict) else None
    return kind if isinstance(kind, str) else None


@dataclass(frozen=True)
class Data:
    """Tokens to learn from, and others to see how well."""

    train: _core.Tokens
    validation: _core.Tokens | None
    vocabulary: int
    tokenizer: Tokenizer | None = None


def text(path: _Path, *, tokenizer: str | Tokenizer = "char", validation: float = 0.1) -> Data:
    """A file of UTF-8 text; its last part is for validation.

    ``tokenizer``: "char", "byte", "bpe:FILE" with a tokenizer.json, "bpe:N" for N tokens learnt
    from the part that is for training, or one that was made before.
    """
    if not 0 <= validation < 1:
        raise Error(f"a validation part of {validation}; use 0 to below 1", "invalid")
    try:
        whole = Path(path).read_bytes().decode()
    except OSError as error:
        raise Error(f"{path}: {error.strerror}", "not_found") from None
    except UnicodeDecodeError as error:
        raise Error(f"{path}: byte {error.start} is not UTF-8", "invalid") from None
    if not whole:
        raise Error(f"{path}: there is no text in it", "invalid")
    border = len(whole) - int(len(whole) * validation)
    parts = (whole[:border], whole[border:])
    known = _tokenizer(tokenizer, whole, parts[0])
    train, held_out = (_tokens_of(known.encode(part), str(path)) for part in parts)
    return Data(train, held_out if len(held_out) else None, known.vocabulary, known)


def tokens(
    train: _Path,
    validation: _Path | None = None,
    *,
    vocabulary: int,
    tokenizer: str | Tokenizer | None = None,
) -> Data:
    """Files of tokens, of which no number reaches ``vocabulary``."""
    held_out = None if validation is None else _core.open_tokens(os.fspath(validation))
    known = None
    if tokenizer is not None:
        known = _tokenizer(tokenizer, "", "")
        if known.vocabulary > vocabulary:
            raise Error(
                f"the tokenizer has {known.vocabulary} tokens, the vocabulary is {vocabulary}",
                "invalid",
            )
    return Data(_core.open_tokens(os.fspath(train)), held_out, vocabulary, known)


def _tokenizer(given: str | Tokenizer, whole: str, train: str) -> Tokenizer:
    if isinstance(given, Tokenizer):
        return given
    kind, colon, rest = given.partition(":")
    if given == "byte":
        return ByteTokenizer()
    if given == "char" and whole:
        return CharTokenizer("".join(sorted(set(whole))))
    if kind == "bpe" and rest.isdigit() and train:
        return BpeTokenizer.train([train], int(rest))
    if kind == "bpe" and colon and not rest.isdigit():
        return BpeTokenizer.read(rest)
    choices = "byte, or bpe:FILE" if not whole else "char, byte, bpe:FILE or bpe:N"
    raise Error(f"there is no tokenizer {given!r} here; use {choices}", "invalid")


def numbers(
    train: Iterable[int], validation: Iterable[int] | None = None, *, vocabulary: int
) -> Data:
    """Tokens that are in memory."""

    def of(some: Iterable[int], name: str) -> _core.Tokens:
        try:
            return _tokens_of(array("I", some), name)
        except (OverflowError, TypeError) as error:
            raise Error(f"tokens for {name}: {error}; give numbers from 0 on", "invalid") from None

    held_out = None if validation is None else of(validation, "validation")
    return Data(of(train, "training"), held_out, vocabulary)


def _tokens_of(numbers: "array[int]", name: str) -> _core.Tokens:
    return _core.tokens_of(numbers, numbers.itemsize, name)


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise Error(
            "BPE needs the package tokenizers: pip install tokenizers", "unsupported"
        ) from None
    return tokenizers
