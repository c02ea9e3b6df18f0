"""Texts and files of tokens, and the numbers that they become."""

from pathlib import Path

import numpy as np
import pytest
import tutti
from tutti import data

WORDS = "the cat sat on the mat; the dog sat on the cat. "


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(WORDS * 20)
    return file


def test_text_is_parted_and_reads_back(text: Path, tmp_path: Path) -> None:
    for kind in ("char", "byte", "bpe:280"):
        made = data.text(text, tokenizer=kind, validation=0.25)
        assert made.tokenizer is not None and made.validation is not None
        train = [made.train[i] for i in range(len(made.train))]
        rest = [made.validation[i] for i in range(len(made.validation))]
        assert made.tokenizer.decode(train) + made.tokenizer.decode(rest) == WORDS * 20
        assert max(train) < made.vocabulary
        made.tokenizer.save(tmp_path / "tokenizer.json")
        again = data.load_tokenizer(tmp_path)
        assert again.vocabulary == made.vocabulary
        assert list(again.encode("the cat")) == list(made.tokenizer.encode("the cat"))
    assert len(data.text(text, tokenizer="bpe:280").train) < len(data.text(text).train)


def test_a_bpe_file_is_used_as_it_is(text: Path, tmp_path: Path) -> None:
    learnt = data.text(text, tokenizer="bpe:280").tokenizer
    assert isinstance(learnt, data.BpeTokenizer)
    learnt._inner.save(str(tmp_path / "bpe.json"))
    read = data.text(text, tokenizer=f"bpe:{tmp_path / 'bpe.json'}").tokenizer
    assert read is not None and list(read.encode("mat")) == list(learnt.encode("mat"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(tutti.Error, match=r"bad\.json: no tokenizer\.json"):
        data.text(text, tokenizer=f"bpe:{tmp_path / 'bad.json'}")
    # The one in the folder of a run, by its name or the folder's.
    learnt.save(tmp_path / "tokenizer.json")
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        saved = data.text(text, tokenizer=f"bpe:{place}").tokenizer
        assert saved is not None and list(saved.encode("mat")) == list(learnt.encode("mat"))
    data.text(text).tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(tutti.Error, match=r"tokenizer\.json is a tokenizer of kind char, not BPE"):
        data.text(text, tokenizer=f"bpe:{tmp_path / 'tokenizer.json'}")


def test_characters_past_ascii_are_tokens_too(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("äöü" * 400 + "".join(map(chr, range(0x4E00, 0x4F00))))
    made = data.text(file, validation=0)
    assert made.vocabulary == 259 and made.validation is None
    assert made.tokenizer is not None and made.tokenizer.decode([made.train[1]]) == "ö"
    with pytest.raises(tutti.Error, match="character 'x' at place 2"):
        made.tokenizer.encode("äöx")


def test_token_files_are_mapped(tmp_path: Path) -> None:
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "train.bin")
    header = np.zeros(256, np.int32)
    header[:3] = 20240801, 7, 2
    (tmp_path / "val.bin").write_bytes(
        header.tobytes() + np.array([7, 100_000], np.uint32).tobytes()
    )
    made = data.tokens(tmp_path / "train.bin", tmp_path / "val.bin", vocabulary=100_001)
    assert len(made.train) == 300 and made.train[299] == 299
    assert made.validation is not None and made.validation[1] == 100_000
    with pytest.raises(IndexError):
        made.train[300]


def test_what_cannot_be_is_told(text: Path, tmp_path: Path) -> None:
    for given, said in (
        ("chars", "there is no tokenizer 'chars'"),
        ("bpe:12", "too few"),
    ):
        with pytest.raises(tutti.Error, match=said):
            data.text(text, tokenizer=given)
    with pytest.raises(tutti.Error, match="validation part of 1"):
        data.text(text, validation=1)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(tutti.Error, match="byte 3 is not UTF-8"):
        data.text(tmp_path / "latin")
    with pytest.raises(tutti.Error, match="No such file"):
        data.tokens(tmp_path / "none.bin", vocabulary=5)
    (tmp_path / "tokenizer.json").write_text('{"kind": "morse"}')
    with pytest.raises(tutti.Error, match="no tokenizer that tutti"):
        data.load_tokenizer(tmp_path)
