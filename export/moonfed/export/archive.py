"""Reproducible TorchScript archives: the same plan gives the same bytes on any machine at any time.

`.debug_pkl` records hold the exporter's source lines and paths, so they are dropped. TorchScript numbers the classes of
a process (`___torch_mangle_17`), so they are renumbered from 0.
"""

from __future__ import annotations

import io
import re
import zipfile

_MANGLED = re.compile(rb"___torch_mangle_(\d+)")
_DROPPED = (".debug_pkl", ".data/serialization_id")  # the second is a checksum of the original records
_TIME = (1980, 1, 1, 0, 0, 0)


def clean_archive(content: bytes) -> bytes:
    """Return the archive without debug records and with fixed numbers and times."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        records = {name: source.read(name) for name in source.namelist() if not name.endswith(_DROPPED)}
    numbers = _new_numbers(records)

    def renumber(text: bytes) -> bytes:
        return _MANGLED.sub(lambda found: b"___torch_mangle_%d" % numbers[int(found[1])], text)

    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as target:
        for name, record in records.items():
            new_name = renumber(name.encode()).decode()
            new_record = renumber(record) if name.endswith((".py", ".pkl")) else record
            target.writestr(zipfile.ZipInfo(new_name, _TIME), new_record)
    return output.getvalue()


def _new_numbers(records: dict[str, bytes]) -> dict[int, int]:
    found = {int(number) for name, record in records.items() for number in _MANGLED.findall(name.encode() + record)}
    return {number: index for index, number in enumerate(sorted(found))}
