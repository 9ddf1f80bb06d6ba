"""The bits with which a device says which classes it has."""

from __future__ import annotations

import pytest

from moonfed.errors import InvalidInput
from moonfed.fleet.class_bits import absent_classes, pack_classes, require_bits

TEN = tuple("abcdefghij")


def test_each_class_has_its_bit() -> None:
    assert pack_classes([], 10) == b"\0\0"
    assert pack_classes([0, 2, 9], 10) == b"\x05\x02"
    assert pack_classes([7], 8) == b"\x80"
    for present in ([], [0, 9], range(10)):
        require_bits(pack_classes(present, 10), 10)


@pytest.mark.parametrize("bits", [b"", b"\x01", b"\1\1\0", b"\0\x04"], ids=["none", "few", "many", "no class"])
def test_other_bits_are_rejected(bits: bytes) -> None:
    with pytest.raises(InvalidInput, match="one bit for each of 10 classes"):
        require_bits(bits, 10)


@pytest.mark.parametrize(
    ("reports", "absent"),
    [
        ([range(9)], "j"),
        ([range(3), range(5, 10)], "de"),
        ([range(5), range(5, 10)], ""),
        ([[]], "abcdefghij"),
        ([], ""),
    ],
    ids=["one device", "two devices", "complementary", "no class", "no device"],
)
def test_a_class_is_absent_if_nobody_has_it(reports: list[range], absent: str) -> None:
    assert absent_classes([pack_classes(present, 10) for present in reports], TEN) == tuple(absent)


def test_nothing_is_absent_while_somebody_does_not_say() -> None:
    assert absent_classes([pack_classes([1], 10), b""], TEN) == ()
