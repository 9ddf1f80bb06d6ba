"""Reproducible TorchScript archives: equal plans give equal bytes, on any machine, after any compilations.

Three things in an archive depend on the process that wrote it, and are replaced:

- `.debug_pkl` records hold the exporter's source lines and paths; they are dropped.
- TorchScript distinguishes types of the same name by a number that counts all types of the process
  (`conv.___torch_mangle_17.Conv2d`). Types are renumbered in the order in which the archive refers to them.
- A module's constants are written in the order of a Python set, which changes with the hash seed. They are sorted.
"""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping

_DROPPED = (".debug_pkl", ".data/serialization_id")  # the second is a checksum of the original records
_TIME = (1980, 1, 1, 0, 0, 0)
_CODE = "/code/"
_DEFINITION = re.compile(r"^(?:class|def) (\w+)", re.MULTILINE)
_CONSTANTS = re.compile(r"(?:^  \w+ : Final\[.*\n)+", re.MULTILINE)
_REFERENCE = re.compile(r"__torch__(?:\.\w+)+")
_MANGLED = re.compile(r"\.___torch_mangle_\d+")


def canonical_archive(content: bytes) -> bytes:
    """Return the archive with everything removed that depends on the process that wrote it."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        records = {name: source.read(name) for name in source.namelist() if not name.endswith(_DROPPED)}
    root = next(iter(records)).split("/", 1)[0]
    definitions = {
        name: text
        for path, record in records.items()
        if path.endswith(".py")
        for name, text in _definitions(path.removeprefix(root + _CODE), record.decode())
    }
    roots = [name for path, record in records.items() if path.endswith(".pkl") for name, _ in _globals(record)]
    names = _canonical_names(definitions, roots)
    result = {
        path: _rename_globals(record, names) if path.endswith(".pkl") else record
        for path, record in records.items()
        if not path.endswith(".py")
    }
    for module, text in _modules(definitions, names).items():
        result[f"{root}{_CODE}{module.replace('.', '/')}.py"] = text.encode()
    return _zip(result)


def _definitions(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the source of each class and function of a code file."""
    module = path.removesuffix(".py").replace("/", ".")
    found = list(_DEFINITION.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=True):
        source = text[match.start() : end]
        yield f"{module}.{match[1]}", _CONSTANTS.sub(lambda block: "".join(sorted(block[0].splitlines(True))), source)


def _globals(record: bytes) -> Iterator[tuple[str, slice]]:
    """Yield the qualified name of each script type in a pickle, and the position of its GLOBAL instruction."""
    for code, argument, position in pickletools.genops(record):
        if code.name == "GLOBAL" and position is not None and str(argument).startswith("__torch__"):
            module, name = str(argument).split(" ")
            yield f"{module}.{name}", slice(position, position + len(f"c{module}\n{name}\n"))


def _canonical_names(definitions: Mapping[str, str], roots: list[str]) -> dict[str, str]:
    """Name definitions in the order in which they are first referred to: the first of a name keeps it bare."""
    names: dict[str, str] = {}
    used: set[str] = set()
    pending = roots[::-1]
    while pending:
        name = pending.pop()
        if name in names:
            continue
        bare = _MANGLED.sub("", name)
        module, _, short = bare.rpartition(".")
        names[name] = f"{module}.___torch_mangle_{len(names)}.{short}" if bare in used else bare
        used.add(bare)
        referred = (_resolve(found[0], definitions) for found in _REFERENCE.finditer(definitions[name]))
        pending += [other for other in referred if other is not None][::-1]
    return names


def _resolve(reference: str, definitions: Mapping[str, str]) -> str | None:
    """Return the definition that a dotted reference names, which may continue to an attribute."""
    while reference not in definitions:
        reference, dot, _ = reference.rpartition(".")
        if not dot:
            return None
    return reference


def _modules(definitions: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the source of each code file, by module; unreferenced definitions are dropped."""

    def renamed(reference: re.Match[str]) -> str:
        name = _resolve(reference[0], definitions)
        return reference[0] if name is None else names[name] + reference[0][len(name) :]

    modules: dict[str, str] = defaultdict(str)
    for name, canonical in names.items():
        modules[canonical.rpartition(".")[0]] += _REFERENCE.sub(renamed, definitions[name])
    return modules


def _rename_globals(record: bytes, names: Mapping[str, str]) -> bytes:
    parts, end = [], 0
    for name, place in _globals(record):
        module, _, short = names[name].rpartition(".")
        parts += [record[end : place.start], f"c{module}\n{short}\n".encode()]
        end = place.stop
    return b"".join([*parts, record[end:]])


def _zip(records: Mapping[str, bytes]) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as target:
        for name, record in records.items():
            target.writestr(zipfile.ZipInfo(name, _TIME), record)
    return output.getvalue()
