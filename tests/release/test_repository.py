"""The model repository on disk: layout, existing files, invalid input, and a poller's view."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.errors import AlreadyExists, Corrupt, InvalidInput, NotFound, UntrustedRelease, WrongState
from moonfed.release.repository import ModelDirectory, ModelRelease
from moonfed.release.signing import ReleaseSigner
from moonfed.signing.key_files import create_keys
from moonfed.signing.release_signature import SIGNATURE_FILE, read_release_key, sign_release
from tests.support.pet_models import contents, graph, read_config, release
from tests.support.refusals import refused

PATIENCE = 120.0


def test_a_first_version_appears_with_configuration_and_labels(directory: ModelDirectory) -> None:
    published = directory.publish(7, release(graph(), bom_json=b"{}"), max_batch_size=16, instances=2)
    assert (published.path, published.version) == (directory.path / "7", 7)
    assert (published.new, published.kept_config) == (True, False)
    assert set(contents(directory.path)) == {"config.pbtxt", "labels.txt", "7/model.onnx", "7/bom.json"}
    assert (directory.path / "7" / "model.onnx").read_bytes() == graph()
    assert (directory.path / "labels.txt").read_text() == "cat\ndog\nfish\n"
    expected = """
        name: "pets"
        backend: "onnxruntime"
        version_policy { latest { num_versions: 1 } }
        max_batch_size: 16
        input { name: "inputs" data_type: TYPE_UINT8 dims: [4, 5, 3] }
        output { name: "probabilities" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" }
        instance_group { count: 2 }
        dynamic_batching {
          default_queue_policy {
            default_timeout_microseconds: 5000000
            allow_timeout_override: true
            max_queue_size: 1024
          }
        }
        model_warmup {
          name: "batch of 1"
          batch_size: 1
          inputs { key: "inputs" value { data_type: TYPE_UINT8 dims: [4, 5, 3] zero_data: true } }
        }
        model_warmup {
          name: "batch of 16"
          batch_size: 16
          inputs { key: "inputs" value { data_type: TYPE_UINT8 dims: [4, 5, 3] zero_data: true } }
        }
    """
    assert read_config(directory) == text_format.Parse(expected, model_config_pb2.ModelConfig())


@pytest.fixture
def watched(directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The contents of the model's directory at every write or removal; every version must be complete."""
    seen: list[list[str]] = []

    def look() -> None:
        if directory.path.is_dir():
            seen.append(sorted(each.name for each in directory.path.iterdir() if not each.name.startswith(".")))
            text_format.Parse((directory.path / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
            for version in (name for name in seen[-1] if name.isdecimal()):
                assert set(contents(directory.path / version)) == {"model.onnx", "card.md"}

    def watch(owner: object, name: str) -> None:
        done = getattr(owner, name)

        def looked_at(*arguments: object, **named: object) -> object:
            look()
            result = done(*arguments, **named)
            look()
            return result

        monkeypatch.setattr(owner, name, looked_at)

    for owner, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "open"), (os, "unlink"), (Path, "rename")):
        watch(owner, name)
    return seen


def test_a_scan_at_any_moment_sees_only_complete_versions(directory: ModelDirectory, watched: list[list[str]]) -> None:
    files = ["config.pbtxt", "labels.txt"]
    directory.publish(1, release(graph(1), card_md=b"#"))
    assert {tuple(names) for names in watched} == {("1", *files)}  # the first one came with all that belongs to it
    watched.clear()
    directory.publish(2, release(graph(2), card_md=b"#"))
    directory.publish(3, release(graph(3), card_md=b"#"))
    directory.roll_back()
    directory.prune(1)
    found = {tuple(names) for names in watched}
    assert found == {("1", *files), ("1", "2", *files), ("1", "2", "3", *files), ("2", "3", *files)}
    assert not [path for path in directory.path.parent.rglob("*") if path.name.startswith(".")]


def test_a_killed_writers_leftovers_are_ignored_and_removed(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(1)))
    left = directory.path / ".2.4711"
    left.mkdir()
    (left / "model.onnx").write_bytes(b"half of")
    assert directory.versions() == [1]
    directory.publish(2, release(graph(2)))
    assert not left.exists()
    assert directory.versions() == [1, 2]


def test_a_killed_writers_first_version_is_ignored_and_removed(directory: ModelDirectory) -> None:
    left = directory.path.parent / ".pets.4711"
    left.mkdir(parents=True)
    (left / "config.pbtxt").write_text("half of")
    directory.publish(1, release(graph(1)))
    assert not left.exists()
    assert names_in(directory.path.parent) == ["pets"]


def test_a_first_version_that_fails_to_write_leaves_nothing(
    directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        directory.publish(1, release(graph(1)))
    assert names_in(directory.path.parent) == []


def test_two_concurrent_first_versions_are_both_published(
    directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, opened, write = threading.Event(), threading.Event(), ModelDirectory._write_labels

    def held(self: ModelDirectory, of: ModelRelease) -> None:
        reached.set()
        assert opened.wait(PATIENCE)
        write(self, of)

    monkeypatch.setattr(ModelDirectory, "_write_labels", held)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(directory.publish, 1, release(graph(1)))
        assert reached.wait(PATIENCE)
        second = threads.submit(directory.publish, 2, release(graph(2)))
        descriptor = os.open(directory.path.parent, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
            opened.set()
        assert first.result(PATIENCE).new
        assert second.result(PATIENCE).new
    assert directory.versions() == [1, 2]


def test_a_version_that_reads_back_differently_is_never_published(
    directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.publish(1, release(graph(1)))
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, content: write(path, content[:-1] + b"?"))
    with refused(Corrupt, "version", 2):
        directory.publish(2, release(graph(2)))
    assert names_in(directory.path) == ["1", "config.pbtxt", "labels.txt"]


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_writers_exclude_each_other_without_a_lock_file(directory: ModelDirectory) -> None:
    with directory.locked():
        descriptor = os.open(directory.path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        assert not list(directory.path.iterdir())


def test_republishing_changes_nothing_and_another_model_is_rejected(directory: ModelDirectory) -> None:
    directory.publish(3, release(graph(1), card_md=b"one"))
    before = contents(directory.path)
    again = directory.publish(3, release(graph(1), card_md=b"two"))
    assert not again.new
    with refused(AlreadyExists, "version", 3):
        directory.publish(3, release(graph(2)))
    (directory.path / "4").mkdir()
    with pytest.raises(AlreadyExists, match="version 4"):
        directory.publish(4, release(graph(2)))
    assert contents(directory.path) == before


def test_an_edited_configuration_is_kept(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(1)))
    path = directory.path / "config.pbtxt"
    edited = "# by hand\n" + path.read_text().replace("max_batch_size: 32", "max_batch_size: 8")
    edited = edited.replace("batch_size: 32", "batch_size: 8")
    path.write_text(edited)
    assert directory.publish(2, release(graph(2))).kept_config
    assert path.read_text() == edited


def test_labels_of_other_classes_are_rejected(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(1)))
    with refused(InvalidInput, "classes"):
        directory.publish(2, release(graph(2), classes=("cat", "dog", "bird")))
    with refused(InvalidInput, "class", "a\nb"):
        ModelDirectory(directory.path.parent, "others").publish(1, release(graph(1), classes=("a\nb", "c", "d")))
    assert directory.versions() == [1]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".pets", "pets "])
def test_invalid_model_names_are_rejected(tmp_path: Path, name: str) -> None:
    with refused(InvalidInput, "name"):
        ModelDirectory(tmp_path, name)


def sign_without_config(directory: ModelDirectory, signer: ReleaseSigner) -> None:
    version = directory.path / "1"
    (version / "config.pbtxt").unlink()
    files = {path.name: path.read_bytes() for path in version.iterdir() if path.name != SIGNATURE_FILE}
    (version / SIGNATURE_FILE).write_bytes(sign_release(files, "pets/1", signer.key))


def edit_config(directory: ModelDirectory, _: object) -> None:
    path = directory.path / "config.pbtxt"
    path.write_text(path.read_text().replace("max_batch_size: 32", "max_batch_size: 7"))


CHANGES: dict[str, tuple[Callable[[ModelDirectory, ReleaseSigner], object], str]] = {
    "model": (lambda d, _: (d.path / "1" / "model.onnx").write_bytes(graph(2.0)), "model.onnx of pets/1 was changed"),
    "config": (edit_config, "config.pbtxt of model 'pets' differs from .* version 1: max_batch_size"),
    "labels": (lambda d, _: (d.path / "labels.txt").write_text("a\nb\nc\n"), "labels.txt of model 'pets' differs from"),
    "signature": (lambda d, _: (d.path / "1" / SIGNATURE_FILE).unlink(), "pets/1 is not signed"),
    "signed without a config": (sign_without_config, "version 1 in .* was signed without config.pbtxt; sign it again"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_version_is_verified_with_its_configuration_and_labels(
    directory: ModelDirectory, tmp_path: Path, change: str
) -> None:
    private = create_keys(tmp_path / "keys")
    signer, keys = ReleaseSigner(private), [read_release_key(private.with_suffix(".pub"))]
    directory.publish(1, release(graph()), signer=signer)
    assert directory.require_verified(1, keys)["model.onnx"] == graph()
    make, sentence = CHANGES[change]
    make(directory, signer)
    with pytest.raises(UntrustedRelease, match=sentence):
        directory.require_verified(1, keys)


def test_a_version_below_one_is_rejected(directory: ModelDirectory) -> None:
    with refused(InvalidInput, "version", 0):
        directory.publish(0, release(graph()))


def test_versions_are_numbers_without_leading_zeros_that_hold_a_model(directory: ModelDirectory) -> None:
    directory.publish(10, release(graph(1)))
    directory.publish(9, release(graph(2)))
    for name in ("010", "v3", "configs"):
        (directory.path / name).mkdir()
        (directory.path / name / "model.onnx").write_bytes(graph(3))
    (directory.path / "12").mkdir()
    assert directory.versions() == [9, 10]
    with refused(NotFound, "version", 12):
        directory.model(12)


def test_rolling_back_from_no_served_version_needs_a_version(directory: ModelDirectory) -> None:
    for version in (2, 4):
        directory.publish(version, release(graph(version)))
    directory.roll_back(4)
    directory.remove_version(4)
    with refused(WrongState, "served version"):
        directory.roll_back()
    assert directory.roll_back(2) == (None, 2)


def test_rolling_back_serves_the_previous_version_and_deletes_nothing(directory: ModelDirectory) -> None:
    for version in (2, 4, 6):
        directory.publish(version, release(graph(version)))
    before = read_config(directory)
    assert directory.served() == [6]
    assert directory.roll_back() == (6, 4)
    assert (directory.versions(), directory.served()) == ([2, 4, 6], [4])
    assert list(read_config(directory).version_policy.specific.versions) == [4]
    assert directory.roll_back() == (4, 2)
    with refused(WrongState, "version before", 2):
        directory.roll_back()
    assert directory.roll_back(6) == (2, 6)  # and forth
    with refused(NotFound, "version", 3):
        directory.roll_back(3)
    assert directory.served() == [6]
    after = read_config(directory)
    after.version_policy.CopyFrom(before.version_policy)
    assert after == before


def test_publishing_after_a_roll_back_serves_the_newest_only_on_request(directory: ModelDirectory) -> None:
    for version in (1, 2):
        directory.publish(version, release(graph(version)))
    directory.roll_back()
    assert not directory.publish(3, release(graph(3))).kept_config
    assert directory.served() == [1]
    directory.publish(4, release(graph(4)), serve_newest=True)
    assert directory.served() == [4]


def test_pruning_keeps_the_served_version(directory: ModelDirectory) -> None:
    for version in range(1, 7):
        directory.publish(version, release(graph(version)))
    directory.roll_back(2)
    assert directory.prune(3) == [1, 3]
    assert directory.versions() == [2, 4, 5, 6]
    assert not [entry for entry in directory.path.iterdir() if entry.name.startswith(".")]


def test_an_empty_directory_cannot_be_rolled_back(directory: ModelDirectory) -> None:
    with pytest.raises(NotFound, match="pets has no versions"):
        directory.roll_back()
    assert not directory.path.exists()
