"""Inspection of a plan's archive before anything in it is loaded or run.

`torch.jit.load` runs code: an archive's `__setstate__` methods. Its parser and unpickler trust sizes that the archive
states. So a plan is read here first. What passes is rewritten with our own zip writer and then loaded, so that torch
never parses bytes that this module has not understood. Torch is not imported.

Rejected: compressed, encrypted, overlapping, duplicate or oddly named members, and too many or too large ones; code
that would run while it is loaded (see `source`); pickles with any global or instruction that TorchScript does not
write; tensors that reach beyond the bytes stored for them.
"""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput, ResourceExhausted, UnsafePlan
from moonfed.files import read_regular
from moonfed.plan.inspection.pickles import require_sane_pickle
from moonfed.plan.inspection.source import Code, read_code

MAXIMUM_BYTES = 256 << 20  # of an archive; its weights travel next to it
MAXIMUM_CODE = 4 << 20  # bytes of all code files; the largest zoo plan has 0.5 MB
MAXIMUM_RECORDS = 10_000
MAXIMUM_NAME = 200  # characters; torch's reader cuts longer ones
MAXIMUM_SECONDS = 60.0  # of an inspection; the largest zoo plan takes 0.2 s

_TIME = (1980, 1, 1, 0, 0, 0)
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
_RECORD = re.compile(r"(data\.pkl|constants\.pkl|version|\.data/version|byteorder|\.format_version|\.storage_alignment"
                     r"|(data|constants)/[0-9]+|code/([A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py)")  # fmt: skip


def read_plan(path: Path) -> bytes:
    """Read a plan's file, inspect it, and return an archive with the same contents, which is safe to parse.

    Raises UnsafePlan naming the problem; OSError if there is no such file.
    """
    try:
        return inspect_archive(read_regular(path, MAXIMUM_BYTES))
    except (InvalidInput, ResourceExhausted) as error:
        raise UnsafePlan(str(error)) from error


def inspect_archive(content: bytes) -> bytes:
    """Return an archive with the same records, rewritten; UnsafePlan if it contains anything unexpected."""
    clock = _Clock(time.monotonic() + MAXIMUM_SECONDS)
    records = _records(content)
    code = _code(records, clock)
    for name in ("data.pkl", "constants.pkl"):
        require_sane_pickle(name, records, code.classes, clock.require_time)
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as target:
        for name, record in records.items():
            target.writestr(zipfile.ZipInfo(f"archive/{name}", _TIME), record)
    return output.getvalue()


def named_operators(content: bytes) -> set[str]:
    """Return the operators that an archive's code names, without overloads; UnsafePlan as `inspect_archive`."""
    return _code(_records(content), _Clock(time.monotonic() + MAXIMUM_SECONDS)).operators


@dataclass(frozen=True, slots=True)
class _Clock:
    """The end of the time that an inspection may take, in seconds of the monotonic clock."""

    end: float

    def require_time(self) -> None:
        """Raise UnsafePlan if the time is over."""
        if time.monotonic() > self.end:
            raise UnsafePlan(f"the plan takes more than {MAXIMUM_SECONDS:.0f} seconds to inspect")


def _records(content: bytes) -> dict[str, bytes]:
    """Return the records by their name in the archive's folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > MAXIMUM_RECORDS:
                raise UnsafePlan(
                    f"the plan has {len(members)} records; it may have {MAXIMUM_RECORDS}",
                    field="records",
                    value=len(members),
                )
            records = dict(_checked(archive, member) for member in members)
    except UnsafePlan:
        raise
    except Exception as error:  # zipfile raises a dozen kinds for damaged archives
        raise UnsafePlan(f"the plan is not a readable archive: {error}", field="archive") from error
    if len({name.lower() for name in records}) < len(members):  # torch's reader ignores the case
        raise UnsafePlan("the plan has two records of one name", field="record names")
    if sum(map(len, records.values())) > len(content):
        raise UnsafePlan("the plan's records overlap")
    version = ".data/version" if ".data/version" in records else "version"  # newer operators need the first
    missing = [name for name in ("data.pkl", "constants.pkl", version) if name not in records]
    if missing:
        raise UnsafePlan(f"the plan has no record {missing[0]!r}")
    return records


def _checked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, bytes]:
    folder, _, name = member.filename.partition("/")
    shown = ascii(member.filename[:MAXIMUM_NAME])
    if len(member.orig_filename) > MAXIMUM_NAME or member.filename != member.orig_filename:
        raise UnsafePlan(
            f"the plan's record {shown} has a broken name, or one of over {MAXIMUM_NAME} characters",
            field="record name",
            value=member.filename[:MAXIMUM_NAME],
        )
    if not _NAME.fullmatch(member.filename) or not folder or not _RECORD.fullmatch(name) or ".." in name:
        raise UnsafePlan(
            f"the plan has a record {shown}, which is not allowed in plans",
            field="record",
            value=member.filename[:MAXIMUM_NAME],
        )
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1 or member.file_size != member.compress_size:
        raise UnsafePlan(
            f"the plan's record {shown} is compressed or encrypted",
            field="stored record",
            value=member.filename[:MAXIMUM_NAME],
        )
    return name, archive.read(member)


def _code(records: Mapping[str, bytes], clock: _Clock) -> Code:
    """Return what the code files define; raise UnsafePlan for what torch's printer does not write."""
    code = {name: record for name, record in records.items() if name.endswith(".py")}
    total = sum(map(len, code.values()))
    if total > MAXIMUM_CODE:
        raise UnsafePlan(
            f"the plan has {total} bytes of code; it may have {MAXIMUM_CODE}", field="bytes of code", value=total
        )
    texts = {name: _text(name, record) for name, record in code.items()}
    return read_code(texts, clock.require_time)


def _text(name: str, record: bytes) -> str:
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafePlan(f"the plan's {name} is not UTF-8") from error
