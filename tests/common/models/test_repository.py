"""The directory of a model in a repository, with writers that are killed and servers that scan it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from moonfed.models.repository import CONFIG_FILE, MODEL_FILE, RepositoryModel
from tests.support.refusals import refused


def write(model: RepositoryModel, *versions: int) -> None:
    with model.open_for_writing() as opened:
        for version in versions:
            with opened.new_version(version) as directory:
                (directory / MODEL_FILE).write_bytes(b"%d" % version)
        opened.replace(CONFIG_FILE, f"serves {versions[-1]}")


def test_versions_are_sorted_by_number_and_incomplete_ones_are_none(tmp_path: Path) -> None:
    model = RepositoryModel(tmp_path / "models", "digits")
    assert model.versions() == []
    write(model, 9, 10)
    for name in ("11", "012", ".13.4711", "labels"):
        (model.path / name).mkdir()
    assert model.versions() == [9, 10]
    assert (model.version_path(10) / MODEL_FILE).read_bytes() == b"10"


def test_the_first_version_appears_with_its_configuration_or_not_at_all(tmp_path: Path) -> None:
    model = RepositoryModel(tmp_path / "models", "digits")

    def fail() -> None:
        with model.open_for_writing() as opened, opened.new_version(1) as directory:
            (directory / MODEL_FILE).write_bytes(b"1")
            assert not model.path.exists()
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert list(model.path.parent.iterdir()) == []
    (model.path.parent / ".digits.4711" / "1").mkdir(parents=True)  # of a writer that was killed
    write(model, 1)
    assert [path.name for path in model.path.parent.iterdir()] == ["digits"]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    model = RepositoryModel(tmp_path / "models", "digits")
    write(model, 1)
    (model.path / ".2.4711").mkdir()
    (model.path / ".1.removed").mkdir()
    write(model, 2)
    model.remove_version(1)
    assert sorted(path.name for path in model.path.iterdir()) == ["2", CONFIG_FILE]


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    model = RepositoryModel(tmp_path / "models", "digits")
    write(model, 1)
    other = RepositoryModel(tmp_path / "models", "digits")
    with model.locked():
        thread = threading.Thread(target=write, args=(other, 2))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert model.versions() == [1]
    thread.join()
    assert model.versions() == [1, 2]


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", ".hidden", "a b"])
def test_a_name_that_is_not_a_directory_of_the_repository_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="name is"):
        RepositoryModel(tmp_path, name)
    (tmp_path / "file").touch()
    with refused(InvalidInput, "repository"):
        RepositoryModel(tmp_path / "file", "digits")
