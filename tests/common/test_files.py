"""Files appear whole or not at all, and reads are bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonfed.errors import InvalidInput, NotFound, ResourceExhausted
from moonfed.files import make_directories, make_private, new_directory, read_regular, require_file, write_durably
from tests.support.refusals import refused


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_missing_file_is_named_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"")
    require_file("data", tmp_path / "there")
    for path in (tmp_path / "gone", tmp_path):
        with refused(NotFound, "data"):
            require_file("data", path)


def test_a_file_is_replaced_whole_and_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"the old one, which is longer")
    write_durably(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert entries(tmp_path) == ["key.pem"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"


def test_only_the_last_of_the_missing_directories_has_the_mode(tmp_path: Path) -> None:
    make_directories(tmp_path / "a" / "b", mode=0o700)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o077
    make_directories(tmp_path / "a" / "b", mode=0o755)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700, "it was there"


@pytest.mark.parametrize("mode", [0o755, 0o740, 0o710, 0o704, 0o701])
def test_a_directory_is_taken_away_from_the_group_and_from_others(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    for _ in range(2):
        make_private(tmp_path / "state")
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert caplog.text.count(f"(mode {mode:o}); it is now private") == 1


def test_a_directory_appears_with_all_its_files(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.mkdir()
    (path / "old").write_bytes(b"")
    with new_directory(path) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "new").write_bytes(b"content")
        assert entries(path) == ["old"], "not before it is complete"
    assert entries(path) == ["sub"]
    assert (path / "sub" / "new").read_bytes() == b"content"
    assert entries(tmp_path) == ["bundle"]


def test_a_directory_that_could_not_be_filled_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.mkdir()
    (path / "old").write_bytes(b"")

    def fill() -> None:
        with new_directory(path) as temporary:
            (temporary / "new").write_bytes(b"")
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        fill()
    assert entries(path) == ["old"]
    assert entries(tmp_path) == ["bundle"]


def test_a_read_is_bounded_and_never_waits_for_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ResourceExhausted, match="file has more than 4 bytes"):
        read_regular(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with refused(InvalidInput, "regular file"):
            read_regular(path, 5)
