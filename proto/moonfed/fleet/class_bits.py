"""A device's classes in an eligibility report: a bit for each class, 1 if it has samples of the class to train on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moonfed.errors import InvalidInput


def pack_classes(present: Iterable[int], classes: int) -> bytes:
    """Return the bits for the numbers of the present classes, of so many in all."""
    return sum(1 << number for number in set(present)).to_bytes(_size(classes), "little")


def require_bits(bits: bytes, classes: int) -> None:
    """Raise InvalidInput unless there is a bit for each of so many classes, and no other one is set."""
    if len(bits) != _size(classes) or _number(bits) >> classes:
        raise InvalidInput(f"classes is {len(bits)} bytes; it must be one bit for each of {classes} classes")


def absent_classes(reports: Iterable[bytes], classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes that nobody has; none unless there are reports, all of which say it."""
    present, some = 0, False
    for bits in reports:
        if not bits:
            return ()
        present, some = present | _number(bits), True
    return tuple(name for number, name in enumerate(classes) if some and not present >> number & 1)


def _number(bits: bytes) -> int:
    return int.from_bytes(bits, "little")


def _size(classes: int) -> int:
    return -(-classes // 8)
