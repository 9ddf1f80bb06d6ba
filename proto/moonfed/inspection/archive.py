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
import pickle
import pickletools
import re
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.errors import InvalidInput, ResourceExhausted, UnsafePlan
from moonfed.files import read_regular
from moonfed.inspection.attributes import DeclaredAttributes, ScriptObject
from moonfed.inspection.source import Code, read_code

MAXIMUM_BYTES = 256 << 20  # of an archive; its weights travel next to it
MAXIMUM_CODE = 8 << 20  # bytes of all code files; the largest zoo plan has 0.5 MB
MAXIMUM_RECORDS = 10_000
MAXIMUM_NAME = 200  # characters; torch's reader cuts longer ones
MAXIMUM_OPCODES = 2_000_000  # of a pickle
MAXIMUM_SECONDS = 60.0  # of an inspection; the largest zoo plan takes 0.2 s

OPCODES_PER_CHECK = 10_000  # of the clock
_TIME = (1980, 1, 1, 0, 0, 0)
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
_RECORD = re.compile(r"(data\.pkl|constants\.pkl|version|\.data/version|byteorder|\.format_version|\.storage_alignment"
                     r"|(data|constants)/[0-9]+|code/([A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py)")  # fmt: skip
_SCRIPT_TYPE = re.compile(r"__torch__(\.[A-Za-z_][A-Za-z0-9_]*)+")
_STORAGE_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
}  # fmt: skip
_GLOBALS = {
    *(("torch", name) for name in _STORAGE_BYTES),
    *(("torch.jit._pickle", f"build_{kind}list") for kind in ("int", "double", "bool", "tensor")),
    ("torch.jit._pickle", "restore_type_tag"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("collections", "OrderedDict"),
}
# What TorchScript's own pickler writes; a `REDUCE` of a script type would call it, so types are only instantiated.
_OPCODES = {
    "PROTO", "STOP", "MARK", "GLOBAL", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "BUILD",
    "REDUCE", "NEWOBJ", "BINPERSID", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NEWTRUE",
    "NEWFALSE", "NONE", "POP",
}  # fmt: skip


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
    for name, folder in (("data.pkl", "data"), ("constants.pkl", "constants")):
        _require_sane_pickle(name, folder, records, code, clock)
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
                raise UnsafePlan(f"the plan has {len(members)} records; it may have {MAXIMUM_RECORDS}")
            records = dict(_checked(archive, member) for member in members)
    except UnsafePlan:
        raise
    except Exception as error:  # zipfile raises a dozen kinds for damaged archives
        raise UnsafePlan(f"the plan is not a readable archive: {error}") from error
    if len(records) < len(members):
        raise UnsafePlan("the plan has two records of one name")
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
        raise UnsafePlan(f"the plan's record {shown} has a broken name, or one of over {MAXIMUM_NAME} characters")
    if not _NAME.fullmatch(member.filename) or not folder or not _RECORD.fullmatch(name) or ".." in name:
        raise UnsafePlan(f"the plan has a record {shown}, which is not allowed in plans")
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1 or member.file_size != member.compress_size:
        raise UnsafePlan(f"the plan's record {shown} is compressed or encrypted")
    return name, archive.read(member)


def _code(records: Mapping[str, bytes], clock: _Clock) -> Code:
    """Return what the code files define; raise UnsafePlan for what torch's printer does not write."""
    code = {name: record for name, record in records.items() if name.endswith(".py")}
    total = sum(map(len, code.values()))
    if total > MAXIMUM_CODE:
        raise UnsafePlan(f"the plan has {total} bytes of code; it may have {MAXIMUM_CODE}")
    texts = {name: _text(name, record) for name, record in code.items()}
    return read_code(texts, clock.require_time)


def _text(name: str, record: bytes) -> str:
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafePlan(f"the plan's {name} is not UTF-8") from error


def _require_sane_pickle(name: str, folder: str, records: Mapping[str, bytes], code: Code, clock: _Clock) -> None:
    """Read a pickle into inert values, with the globals and opcodes that TorchScript writes."""
    content = records[name]
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if count % OPCODES_PER_CHECK == 0:
                clock.require_time()
            if count > MAXIMUM_OPCODES:
                raise UnsafePlan(f"the plan's {name} has over {MAXIMUM_OPCODES:,} instructions")
            if opcode.name not in _OPCODES:
                raise UnsafePlan(f"the plan's {name} has the instruction {opcode.name}, which is not allowed in plans")
            if opcode.name == "GLOBAL":
                _require_allowed_global(name, *str(argument).split(" ", 1))
            if (
                opcode.name == "LONG_BINPUT" and (argument or 0) > MAXIMUM_OPCODES
            ):  # unpicklers allocate as many objects
                raise UnsafePlan(
                    f"the plan's {name} has the object number {argument}, but fewer instructions than that"
                )
        unpickler = _InertUnpickler(name, folder, records, code)
        unpickler.load()
        unpickler.attributes.require()
    except UnsafePlan:
        raise
    except Exception as error:  # pickle raises anything for damaged bytes
        raise UnsafePlan(f"the plan's {name} is damaged: {error}") from error


def _require_allowed_global(record: str, module: str, name: str) -> None:
    qualified = f"{module}.{name}"
    script = _SCRIPT_TYPE.fullmatch(qualified) and not qualified.startswith("__torch__.torch.classes")
    if not script and (module, name) not in _GLOBALS:
        raise UnsafePlan(f"the plan's {record} refers to {qualified[:100]!a}, which no plan may use")


class _Inert:
    """The result of a permitted call."""


class _StorageType:
    """A storage type, whose elements have `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size


class _Storage:
    """A storage of `elements`."""

    def __init__(self, elements: int) -> None:
        self.elements = elements


class _InertUnpickler(pickle.Unpickler):
    """An unpickler whose objects cannot run code, and which checks each tensor against its bytes in the archive."""

    def __init__(self, record: str, folder: str, records: Mapping[str, bytes], code: Code) -> None:
        super().__init__(io.BytesIO(records[record]))
        self._record, self._folder, self._records = record, folder, records
        self.attributes = DeclaredAttributes(code.classes)

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        """Return a stand-in."""
        _require_allowed_global(self._record, module, name)
        if name in _STORAGE_BYTES:
            return _StorageType(_STORAGE_BYTES[name])
        if name == "_rebuild_tensor_v2":
            return self._rebuild_tensor
        if name == "restore_type_tag":
            return lambda value, _: value
        if module == "torch.jit._pickle":
            return list
        return dict if name == "OrderedDict" else self._script_class(f"{module}.{name}")

    def _script_class(self, script_type: str) -> type[ScriptObject]:
        """Return a class whose instances check their attributes when they get them."""

        def set_state(_: object, state: object) -> None:
            self.attributes.add(script_type, state)

        return type("_Checked", (ScriptObject,), {"script_type": script_type, "__setstate__": set_state})

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401 - from the archive
        """Return a storage, if the archive has as many bytes as it claims."""
        kind, type_, key, _, elements = pid
        if kind != "storage" or not isinstance(type_, _StorageType) or not isinstance(elements, int) or elements < 0:
            raise UnsafePlan(f"the plan's {self._record} has a malformed storage")
        stored = len(self._records.get(f"{self._folder}/{key}", b""))
        if elements * type_.size != stored:
            raise UnsafePlan(
                f"the plan's {self._record} claims {elements * type_.size} bytes for a storage of {stored} bytes"
            )
        return _Storage(elements)

    def _rebuild_tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> _Inert:  # noqa: ANN401
        numbers = [offset, *size, *stride]
        if not isinstance(storage, _Storage) or len(size) != len(stride) or len(size) > 16:
            raise UnsafePlan(f"the plan's {self._record} has a malformed tensor")
        if any(not isinstance(number, int) or number < 0 for number in numbers):
            raise UnsafePlan(f"the plan's {self._record} has a tensor with a size or stride below 0")
        last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        if all(size) and last >= storage.elements:
            raise UnsafePlan(f"the plan's {self._record} has a tensor that reaches beyond its storage")
        return _Inert()
