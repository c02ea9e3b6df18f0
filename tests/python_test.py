"""The Python door: values, zero copies, and errors in the runtime's own words."""

import array
import pickle
import re
from pathlib import Path

import pytest
import tutti

ROOT = Path(__file__).resolve().parent.parent


def test_version_is_the_one_in_the_header() -> None:
    header = (ROOT / "src/base/version.h").read_text()
    found = re.search(r'kVersion = "(.*)"', header)
    assert found is not None
    assert tutti.__version__ == found[1]


def test_hash64_reads_any_contiguous_buffer() -> None:
    expected = 0x8D279812EFF8A92D
    assert tutti.hash64(b"tutti") == expected
    assert tutti.hash64(bytearray(b"tutti")) == expected
    assert tutti.hash64(memoryview(b"..tutti..")[2:7]) == expected
    assert tutti.hash64(array.array("b", b"tutti")) == expected
    assert tutti.hash64(b"tutti", seed=1) != expected


def test_hash64_of_a_large_buffer_is_that_of_its_copy() -> None:
    large = bytes(range(256)) * 1024
    assert tutti.hash64(large) == tutti.hash64(memoryview(bytearray(large)))


def test_hash64_refuses_what_is_not_a_contiguous_buffer() -> None:
    with pytest.raises(TypeError):
        tutti.hash64("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        tutti.hash64(memoryview(b"abcdef")[::2])


def test_parse_duration_gives_seconds() -> None:
    assert tutti.parse_duration("250ms") == 0.25
    assert tutti.parse_duration("2m30s") == 150.0


def test_an_error_has_the_code_and_the_words_of_the_runtime() -> None:
    with pytest.raises(tutti.Error) as caught:
        tutti.parse_duration("soon")
    assert caught.value.code == "invalid"
    assert str(caught.value).startswith("'soon' is not a duration; write it like 250ms")


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(tutti.Error("gone", "not_found")))
    assert (str(error), error.code) == ("gone", "not_found")
