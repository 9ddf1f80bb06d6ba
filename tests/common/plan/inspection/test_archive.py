from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection import archive as module
from moonfed.plan.inspection.archive import MAXIMUM_NAME, inspect_archive, read_plan
from tests.support.attack_plans import Harmless, archive_of, on_load, rewritten, with_code
from tests.support.refusals import refused


@pytest.fixture(scope="module")
def harmless() -> bytes:
    return archive_of(Harmless())


def records(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def test_an_honest_archive_keeps_its_records_and_loads(harmless: bytes) -> None:
    inspected = inspect_archive(harmless)
    assert records(inspected) == records(harmless)
    module = torch.jit.load(io.BytesIO(inspected))  # type: ignore[no-untyped-call]
    assert module(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 3.0]


def test_bytes_before_the_zip_archive_are_not_passed_on(harmless: bytes) -> None:
    assert inspect_archive(b"#!/bin/sh\nevil\n" + harmless) == inspect_archive(harmless)


def test_code_that_runs_at_loading_is_rejected() -> None:
    with pytest.raises(UnsafePlan, match=r"has '__[gs]etstate__', which is not allowed in plans"):
        inspect_archive(on_load())


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_compressed_records_are_rejected(harmless: bytes, compression: int) -> None:
    with pytest.raises(UnsafePlan, match="is compressed or encrypted"):
        inspect_archive(rewritten(harmless, lambda found: found, compression))


def test_a_compressed_record_is_rejected_though_it_is_no_smaller(harmless: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as trials:
        for repeated in range(20):
            trials.writestr(str(repeated), bytes([*range(40), *[0] * repeated]))
        same = next(found for found in trials.infolist() if found.compress_size == found.file_size)
    content = io.BytesIO(harmless)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/7", bytes([*range(40), *[0] * int(same.filename)]))
    with refused(UnsafePlan, "stored record", "archive/data/7"):
        inspect_archive(content.getvalue())


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("archive/" + "x" * MAXIMUM_NAME, "record name"),
        ("archive/code/../../x.py", "record"),
        ("archive/extra/x", "record"),
        ("archive/code/x.debug_pkl", "record"),
        ("archive/data/0\n", "record"),
        ("/etc/passwd", "record"),
        ("an archive/data/7", "record"),
    ],
)
def test_records_with_other_names_are_rejected(harmless: bytes, name: str, field: str) -> None:
    with refused(UnsafePlan, field, name[:MAXIMUM_NAME]):
        inspect_archive(rewritten(harmless, lambda found: found | {name: b"x"}))


def test_a_repeated_record_is_rejected(harmless: bytes) -> None:
    content = io.BytesIO(harmless)
    with zipfile.ZipFile(content, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(archive.namelist()[0], b"x")
    with refused(UnsafePlan, "record names"):
        inspect_archive(content.getvalue())


def test_a_name_that_ends_at_a_zero_byte_is_rejected(harmless: bytes) -> None:
    """Readers disagree about the end of the name."""
    content = rewritten(harmless, lambda found: found | {"archive/data/7_x": b"x"})
    with pytest.raises(UnsafePlan, match="has a broken name"):
        inspect_archive(content.replace(b"archive/data/7_x", b"archive/data/7\0x"))


@pytest.mark.parametrize(("field", "value"), [(8, b"\x01\x00"), (24, b"\xff\xff\xff\x7f")])
def test_an_encrypted_record_and_one_of_a_false_size_are_rejected(harmless: bytes, field: int, value: bytes) -> None:
    """`field`: its offset in the first entry of the directory."""
    start = harmless.index(b"PK\x01\x02") + field
    with pytest.raises(UnsafePlan, match="is compressed or encrypted"):
        inspect_archive(harmless[:start] + value + harmless[start + len(value) :])


def test_records_that_overlap_are_rejected(harmless: bytes) -> None:
    """A small archive could have many large records, each within the others."""
    more = {"archive/data/8": b"x", "archive/data/9": b"y" * 100_000}
    content = rewritten(harmless, lambda found: found | more)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        outer, inner = (archive.getinfo(name).header_offset + 30 + len(name) for name in more)
    record = content[outer : inner + 100_000]
    entry = content.rindex(b"archive/data/8") - 46  # in the directory
    sizes = struct.pack("<3L", zlib.crc32(record), len(record), len(record))
    with pytest.raises(UnsafePlan, match=r"[Oo]verlap"):  # by us, or by newer versions of zipfile
        inspect_archive(content[: entry + 16] + sizes + content[entry + 28 :])


def test_too_many_records_are_rejected(harmless: bytes) -> None:
    many = {f"archive/data/{number}": b"" for number in range(10_001)}
    with refused(UnsafePlan, "records"):
        inspect_archive(rewritten(harmless, lambda found: found | many))


@pytest.mark.parametrize(
    "name", ["archive/CODE/__torch__.py", "archive/Data.pkl", "archive/code/__TORCH__/tests/support/attack_plans.py"]
)
def test_records_whose_names_differ_in_case_are_rejected(harmless: bytes, name: str) -> None:
    """Torch's reader ignores the case, so that it could take the one for the other."""
    with pytest.raises(UnsafePlan, match=r"two records of one name|is not allowed in plans"):
        inspect_archive(rewritten(harmless, lambda found: found | {name: b""}))


@pytest.mark.parametrize("missing", ["data.pkl", "constants.pkl", "version"])
def test_a_missing_record_is_rejected(harmless: bytes, missing: str) -> None:
    def without(found: dict[str, bytes]) -> dict[str, bytes]:
        return {name: record for name, record in found.items() if not name.endswith("/" + missing)}

    with pytest.raises(UnsafePlan, match=f"has no record '{missing}'"):
        inspect_archive(rewritten(harmless, without))


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_not_an_archive_is_rejected(content: bytes) -> None:
    with pytest.raises(UnsafePlan, match=r"not a readable archive|has no record"):
        inspect_archive(content)


def test_a_device_file_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.pt")
    for path in (tmp_path / "plan.pt", Path("/dev/zero")):
        with pytest.raises(UnsafePlan, match="not a regular file"):
            read_plan(path)


def test_a_plan_that_is_too_large_is_not_read(harmless: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.pt").write_bytes(harmless)
    monkeypatch.setattr(module, "MAXIMUM_BYTES", len(harmless) - 1)
    with pytest.raises(UnsafePlan, match=f"has more than {len(harmless) - 1} bytes"):
        read_plan(tmp_path / "plan.pt")


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00evil\x85R.", "refers to 'os.system', which no plan may use"),
        (b"\x80\x02Rcos\nsystem\n.", "refers to 'os.system', which no plan may use"),  # behind a call of nothing
        (b"\x80\x02c__torch__.torch.classes.quantized\nConv\n)\x81.", "which no plan may use"),
        (b"\x80\x02c__builtin__\neval\n.", "which no plan may use"),
        (b"\x80\x03cbuiltins\nstr\n.", "which no plan may use"),
        (b"(S'x'\ni__main__\nx\n.", "has the instruction STRING|has the instruction INST"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "has the instruction SHORT_BINUNICODE"),
        (b"\x80\x02K\x01", "is damaged"),
        (b"\x80\x02)R.", "is damaged"),
    ],
)
def test_pickles_with_anything_else_are_rejected(harmless: bytes, pickled: bytes, message: str) -> None:
    def change(found: dict[str, bytes]) -> dict[str, bytes]:
        return {name: pickled if name.endswith("/data.pkl") else record for name, record in found.items()}

    with pytest.raises(UnsafePlan, match=message):
        inspect_archive(rewritten(harmless, change))


def test_both_pickles_are_inspected(harmless: bytes) -> None:
    evil = {"archive/constants.pkl": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00evil\x85R."}

    def change(found: dict[str, bytes]) -> dict[str, bytes]:
        return {f"archive/{name.partition('/')[2]}": record for name, record in found.items()} | evil

    with pytest.raises(UnsafePlan, match=r"constants\.pkl refers to 'os\.system'"):
        inspect_archive(rewritten(harmless, change))


class WithBuffer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.arange(6, dtype=torch.int32).reshape(2, 3))

    def forward(self) -> torch.Tensor:
        return self.values  # type: ignore[return-value]


def test_a_storage_must_have_the_bytes_that_it_claims() -> None:
    def cut(found: dict[str, bytes]) -> dict[str, bytes]:
        return {name: record[:-4] if "/data/" in name else record for name, record in found.items()}

    content = archive_of(WithBuffer())
    inspect_archive(content)
    with pytest.raises(UnsafePlan, match="claims 24 bytes for a storage of 20 bytes"):
        inspect_archive(rewritten(content, cut))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"K\x02K\x03t", b"K\x02K\x04t", "reaches beyond its storage"),  # the size
        (b"K\x03K\x01t", b"K\x09K\x01t", "reaches beyond its storage"),  # the stride
        (b"K\x03K\x01t", b"K\x03J\xff\xff\xff\xfft", "size or stride below 0"),
    ],
)
def test_a_tensor_must_lie_within_its_storage(old: bytes, new: bytes, message: str) -> None:
    def change(found: dict[str, bytes]) -> dict[str, bytes]:
        name = next(name for name in found if name.endswith("/data.pkl"))
        assert old in found[name]
        return found | {name: found[name].replace(old, new)}

    with pytest.raises(UnsafePlan, match=message):
        inspect_archive(rewritten(archive_of(WithBuffer()), change))


def test_a_tensor_has_few_dimensions() -> None:
    def change(found: dict[str, bytes]) -> dict[str, bytes]:
        name = next(name for name in found if name.endswith("/data.pkl"))
        many = b"K\x01" * 17 + b"t"
        assert found[name].count(b"K\x02K\x03t") == found[name].count(b"K\x03K\x01t") == 1
        return found | {name: found[name].replace(b"K\x02K\x03t", many).replace(b"K\x03K\x01t", many)}

    with pytest.raises(UnsafePlan, match="has a malformed tensor"):
        inspect_archive(rewritten(archive_of(WithBuffer()), change))


@pytest.mark.parametrize("size", [0, 1, 7, 50, 300, -1, -30])
def test_a_cut_archive_raises_nothing_else(harmless: bytes, size: int) -> None:
    with pytest.raises(UnsafePlan):
        inspect_archive(harmless[:size])


def test_damaged_bytes_raise_nothing_else(harmless: bytes) -> None:
    for position in range(0, len(harmless), 7):
        damaged = harmless[:position] + bytes([harmless[position] ^ 0x41]) + harmless[position + 1 :]
        try:
            inspect_archive(damaged)
        except UnsafePlan:
            continue


def test_code_must_be_text(harmless: bytes) -> None:
    with pytest.raises(UnsafePlan, match="is not UTF-8"):
        inspect_archive(
            rewritten(
                harmless, lambda found: {n: b"\xff" if n.endswith(".py") else record for n, record in found.items()}
            )
        )


def test_too_much_code_is_rejected(harmless: bytes) -> None:
    with refused(UnsafePlan, "bytes of code"):
        inspect_archive(with_code(harmless, lambda text: text + "\n" * (9 << 20)))
