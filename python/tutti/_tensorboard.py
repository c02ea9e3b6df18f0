"""TensorBoard's event files: records in the framing of TFRecord, each an Event of protobuf.

A record is its length (u64), the masked CRC-32C of that, the data, and their masked CRC-32C, all
little-endian. Of tensorflow/core/util/event.proto and framework/summary.proto this has what
scalars need.
"""

import math
import struct
from collections.abc import Iterator, Mapping

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
_MASK = 0xA282EAD8
# Fields of Event, of Summary and of its Value, by number; and of what kind they are.
_DOUBLE, _VARINT, _BYTES, _FLOAT = 1, 0, 2, 5
_TIME, _STEP, _VERSION, _SUMMARY, _SESSION = 1, 2, 3, 5, 7
_VALUE, _TAG, _NUMBER = 1, 1, 2
_STATUS, _START = 1, 1


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """A record."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def records(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The data of whole and undamaged records from the beginning on, each with where it ends."""
    at = 0
    while at + 12 <= len(data):
        head, length = data[at : at + 8], struct.unpack_from("<Q", data, at)[0]
        end = at + 12 + length + 4
        body = data[at + 12 : end - 4]
        if end > len(data) or data[at + 8 : at + 12] != _masked(head):
            return
        if data[end - 4 : end] != _masked(body):
            return
        yield body, end
        at = end


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, kind: int, data: bytes) -> bytes:
    return _varint(number << 3 | kind) + (_varint(len(data)) if kind == _BYTES else b"") + data


def _event(time: float, step: int, what: bytes) -> bytes:
    stamp = _field(_TIME, _DOUBLE, struct.pack("<d", time))
    return framed(stamp + _field(_STEP, _VARINT, _varint(step)) + what)


def beginning(time: float, step: int) -> bytes:
    """What a file begins with whose first step is ``step``: a reader that has seen later ones in
    the files before forgets them."""
    version = _event(time, 0, _field(_VERSION, _BYTES, b"brain.Event:2"))
    start = _field(_STATUS, _VARINT, _varint(_START))
    return version + _event(time, step, _field(_SESSION, _BYTES, start))


def scalars(time: float, step: int, values: Mapping[str, float]) -> bytes:
    """One record with the values of a step, by their tags."""
    parts = [
        _field(_TAG, _BYTES, tag.encode()) + _field(_NUMBER, _FLOAT, _f32(value))
        for tag, value in values.items()
    ]
    summary = b"".join(_field(_VALUE, _BYTES, part) for part in parts)
    return _event(time, step, _field(_SUMMARY, _BYTES, summary))


def _f32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def step_of(event: bytes) -> int:
    """The step of an Event as _event() makes it: behind the time, which takes nine bytes."""
    step, shift = 0, 0
    for byte in event[10:]:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return step
