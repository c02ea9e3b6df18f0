from typing_extensions import Buffer

version: str

def hash64(data: Buffer, seed: int = 0) -> int:
    """XXH3 of a contiguous buffer, read in place."""

def parse_duration(text: str) -> float:
    """Seconds in text such as '250ms', '1.5s', '2m30s'; raises tutti.Error."""
