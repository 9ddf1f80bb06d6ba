"""The checked-in stubs match the .proto files."""

from pathlib import Path

import moonfed.v1
from tools.generate_stubs import generate

STUBS = Path(next(iter(moonfed.v1.__path__)))


def test_regenerating_the_stubs_changes_nothing(tmp_path: Path) -> None:
    generate(tmp_path)
    generated = {path.name: path.read_text() for path in (tmp_path / "moonfed/v1").iterdir()}
    checked_in = {path.name: path.read_text() for path in STUBS.glob("*_pb2*.py*")}
    assert generated == checked_in
