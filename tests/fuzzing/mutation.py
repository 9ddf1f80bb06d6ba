"""Mutants of valid inputs without coverage: for the regression test, and where atheris is not installed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"18446744073709551616", b"9" * 5000, b"4294967296")
TOKENS = (
    *NUMBERS,
    *(b"null", b"true", b"[]", b"{}", b'"\\ud800"', b'""', b"[" * 200, b'{"a":' * 2000, b"\x00", b"\xff" * 8),
    *(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"..", b"\n", b"\r\n", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
)
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9.]{2,30}")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_LARGEST_BLOCK = 64


def words(seeds: Sequence[bytes]) -> list[bytes]:
    """Return the words of some inputs, and tokens that parsers tend to mishandle."""
    found = {word for seed in seeds for word in _WORD.findall(seed)}
    return [*TOKENS, *sorted(found)[:500]]


def mutants(seeds: Sequence[bytes], seed: int, largest: int) -> Iterator[bytes]:
    """Yield mutants forever, the same ones for the same seed; each has one to five changes."""
    generator = random.Random(seed)
    dictionary = words(seeds)
    changes: list[Callable[[random.Random, bytes], bytes]] = [
        _flip,
        _overwrite,
        _cut,
        _repeat,
        _truncate,
        _replace_number,
        partial(_insert, dictionary),
        partial(_replace_word, dictionary),
        partial(_splice, seeds),
    ]
    while True:
        content = generator.choice(seeds)
        for _ in range(generator.choice((1, 1, 1, 2, 3, 5))):
            content = generator.choice(changes)(generator, content)
        yield content[:largest]


def _span(generator: random.Random, content: bytes) -> tuple[int, int]:
    start = generator.randrange(len(content) + 1)
    return start, min(len(content), start + generator.randrange(1, _LARGEST_BLOCK))


def _flip(generator: random.Random, content: bytes) -> bytes:
    if not content:
        return content
    at = generator.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << generator.randrange(8))]) + content[at + 1 :]


def _overwrite(generator: random.Random, content: bytes) -> bytes:
    at = generator.randrange(len(content) + 1)
    width = generator.choice((1, 2, 4, 8))
    value = generator.choice((0, 1, 0x7F, 0x80, 0xFF, 2**16, 2**31, 2**63 - 1, 2**64 - 1, generator.getrandbits(64)))
    return content[:at] + (value % (1 << 8 * width)).to_bytes(width, "little") + content[at + width :]


def _cut(generator: random.Random, content: bytes) -> bytes:
    start, end = _span(generator, content)
    return content[:start] + content[end:]


def _repeat(generator: random.Random, content: bytes) -> bytes:
    start, end = _span(generator, content)
    times: int = generator.choice((1, 2, 50))
    return content[:end] + content[start:end] * times + content[end:]


def _truncate(generator: random.Random, content: bytes) -> bytes:
    return content[: generator.randrange(len(content) + 1)]


def _insert(dictionary: Sequence[bytes], generator: random.Random, content: bytes) -> bytes:
    at = generator.randrange(len(content) + 1)
    return content[:at] + generator.choice(dictionary) + content[at:]


def _replace_number(generator: random.Random, content: bytes) -> bytes:
    return _replaced(generator, content, _NUMBER, generator.choice(NUMBERS))


def _replace_word(dictionary: Sequence[bytes], generator: random.Random, content: bytes) -> bytes:
    return _replaced(generator, content, _WORD, generator.choice(dictionary))


def _replaced(generator: random.Random, content: bytes, pattern: re.Pattern[bytes], token: bytes) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    match = generator.choice(found)
    return content[: match.start()] + token + content[match.end() :]


def _splice(seeds: Sequence[bytes], generator: random.Random, content: bytes) -> bytes:
    other = generator.choice(seeds)
    return content[: generator.randrange(len(content) + 1)] + other[generator.randrange(len(other) + 1) :]
