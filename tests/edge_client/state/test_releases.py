"""Installed releases on disk: switches, repairs, kills at any moment and power losses."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.fleet.target_release import InstalledRelease
from tests.faults.kills import kills
from tests.faults.power import Disk
from tests.support.device_releases import classifier, make_release
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

MODEL = "model.onnx"


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def install(state: Path, version: int, *, deployment: int = 0, plan: bool = False) -> ReleaseStore:
    store = ReleaseStore(state)
    made = make_release(version, model=classifier(seed=version))
    store.install(made.files(state / "blobs", deployment or version, plan=plan))
    return store


def test_a_version_is_installed_with_exactly_its_files_and_the_last_line_of_its_configuration(tmp_path: Path) -> None:
    store = ReleaseStore(tmp_path)
    assert (store.names(), store.current("digits"), store.inventory()) == ([], 0, [])
    release = make_release(3).files(tmp_path / "blobs", 7)
    store.install(release)
    model = tmp_path / "repository" / "digits"
    assert files(model) == [
        *(f"3/{name}" for name in sorted(release.files)),
        "config.pbtxt",
        "labels.txt",
    ]
    signed = (model / "3" / "config.pbtxt").read_text()
    policy = "version_policy { specific { versions: 3 } }"
    assert (model / "config.pbtxt").read_text() == f"{signed.rstrip()}\n{policy}\n"
    assert (model / "labels.txt").read_text() == "left\nmiddle\nright\n"
    assert store.inventory() == [InstalledRelease(name="digits", version=3, variant="float32")]
    assert (store.deployment("digits"), store.previous("digits")) == (7, 0)
    assert store.open("digits", 3).manifest == release.manifest
    store.note_reported("digits", 7)
    assert store.installed("digits").deployment == 7


def test_the_previous_version_stays_and_no_other(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        store = install(tmp_path, version)
    model = tmp_path / "repository" / "digits"
    assert sorted(path.name for path in model.iterdir()) == ["2", "3", "config.pbtxt", "labels.txt"]
    assert sorted(path.name for path in (tmp_path / "releases" / "digits").iterdir()) == ["2", "3", "state.json"]
    assert (store.current("digits"), store.previous("digits"), store.deployment("digits")) == (3, 2, 3)
    store.switch("digits", 2, 9)
    assert (store.current("digits"), store.previous("digits"), store.deployment("digits")) == (2, 3, 9)
    with pytest.raises(NotFound, match="has no version 1"):
        store.open("digits", 1)


def test_installing_the_same_version_again_changes_only_the_deployment(tmp_path: Path) -> None:
    install(tmp_path, 1)
    store = install(tmp_path, 2)
    file = tmp_path / "repository" / "digits" / "2" / MODEL
    written = file.stat()
    install(tmp_path, 2, deployment=8)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert (store.current("digits"), store.previous("digits"), store.deployment("digits")) == (2, 1, 8)


@pytest.mark.parametrize("damage", ["other content", "another file"])
def test_a_damaged_version_is_written_again_when_it_is_installed_again(damage: str, tmp_path: Path) -> None:
    for version in (1, 2):
        store = install(tmp_path, version)
    previous = tmp_path / "repository" / "digits" / "1"
    if damage == "other content":
        (previous / MODEL).unlink()  # it may be a link
        (previous / MODEL).write_bytes(b"damaged")
    else:
        (previous / "model.plan").write_bytes(b"damaged")
    install(tmp_path, 1, deployment=3)
    assert store.current("digits") == 1
    assert set(files(previous)) == set(store.open("digits", 1).manifest.files("float32"))


def test_a_removed_model_leaves_the_number_of_its_last_deployment(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    store.note_reported("digits", 5)
    store.remove("digits")
    store.remove("digits")
    assert (store.names(), store.current("digits")) == ([], 0)
    assert files(tmp_path / "repository") == []
    assert store.installed("digits") == InstalledRelease(name="digits", deployment=5)


@pytest.mark.parametrize("file", ["2/model.onnx", "2/config.pbtxt", "config.pbtxt"])
def test_a_damaged_version_gives_way_to_the_previous_one(file: str, tmp_path: Path) -> None:
    install(tmp_path, 1)
    store = install(tmp_path, 2)
    assert store.repair("digits") == ""
    damage(tmp_path / "repository" / "digits" / file)
    assert store.repair("digits")
    assert (store.current("digits"), store.previous("digits"), store.deployment("digits")) == (1, 0, 1)
    assert not (tmp_path / "repository" / "digits" / "2").exists()
    assert store.repair("digits") == ""


def test_a_damaged_version_without_another_one_is_removed(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    damage(tmp_path / "releases" / "digits" / "1" / "release.json")
    assert "release.json differs" in store.repair("digits")
    assert (store.names(), store.installed("digits").version) == ([], 0)


def test_damage_is_named(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    damage(tmp_path / "repository" / "digits" / "1" / MODEL)
    with refused(Corrupt, "file", "model.onnx"):
        store.open("digits", 1)
    damage(tmp_path / "repository" / "digits" / "config.pbtxt")
    with pytest.raises(Corrupt, match=r"config\.pbtxt does not name"):
        store.current("digits")
    (tmp_path / "releases" / "digits" / "state.json").write_text("[")
    assert (store.installed("digits").version, store.deployment("digits")) == (0, 0)


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", ""])
def test_a_name_outside_the_repository_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        ReleaseStore(tmp_path).current(name)


def test_leftovers_are_removed(tmp_path: Path) -> None:
    store = install(tmp_path, 1)
    kept = files(tmp_path)
    for leftover in (
        "repository/.other.12/1",
        "repository/digits/.2.12",
        "releases/digits/.2.12",
        "repository/digits/7",
    ):
        (tmp_path / leftover).mkdir(parents=True)
        (tmp_path / leftover / MODEL).write_bytes(b"half")
    (tmp_path / "repository" / "digits" / ".config.pbtxt.12").write_text("half")
    store.remove_leftovers()
    assert files(tmp_path) == kept


def test_a_power_loss_leaves_the_old_version_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what has reached the disk before and after every fsync of an installation."""
    state, seen = tmp_path / "state", list[int]()
    state.mkdir()
    disk, fsync = Disk(), os.fsync

    def look(descriptor: int) -> None:
        disk.fsync(descriptor)
        after = tmp_path / f"after-{len(seen)}"
        disk.survivors(state, after)
        seen.append(whole(after))

    monkeypatch.setattr(os, "fsync", look)
    for version in (1, 2, 3):
        install(state, version)
    monkeypatch.setattr(os, "fsync", fsync)
    disk.close()
    assert sorted(set(seen)) == [0, 1, 2, 3]
    assert seen == sorted(seen)


def whole(state: Path) -> int:
    """Return the version that a device answers with, all of whose files are there; 0: none."""
    store = ReleaseStore(state)
    if not store.names():
        return 0
    assert store.names() == ["digits"]
    version = store.current("digits")
    found = store.open("digits", version)
    assert found.manifest.version == version
    assert (found.directory.parent / "labels.txt").read_text() == "left\nmiddle\nright\n"
    return version


LOOP = """
import sys
from pathlib import Path
from tests.edge_client.state.test_releases import install
state = Path(sys.argv[1])
print("ready", flush=True)
version = int(sys.argv[2])
while True:
    version += 1
    install(state, version)
    print(version, flush=True)
"""


@pytest.mark.timeout(120 + 10 * kills(6))
def test_a_kill_at_any_moment_leaves_the_old_version_or_the_new_one(tmp_path: Path) -> None:
    chance = random.Random(random.SystemRandom().randrange(1 << 32))
    before = 0
    for _ in range(kills(6)):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(before)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout
        with process.stdout:
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.06))
            process.send_signal(signal.SIGKILL)
            process.wait()
            acknowledged = [int(line) for line in process.stdout]
        now = whole(tmp_path)
        newest = max(acknowledged, default=before)
        assert newest <= now <= newest + 1
        ReleaseStore(tmp_path).remove_leftovers()
        assert whole(tmp_path) == now
        before = now


def damage(file: Path) -> None:
    """Replace a file, which may be a hard link, by one with another content."""
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-3])


@pytest.mark.parametrize("number", [1, 50])
def test_names_that_were_never_installed_leave_nothing(number: int, tmp_path: Path) -> None:
    """Targets name models before anything vouches for them."""
    found = ReleaseStore(tmp_path / "state")
    for model in range(number):
        found.remove(f"model-{model}")
        found.note_reported(f"model-{model}", 7)
    assert not list((tmp_path / "state").rglob("*"))


def test_going_back_restores_the_personal_tensors_that_a_version_was_installed_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ReleaseStore(tmp_path)
    for version in (1, 2):
        own = tmp_path / f"{version}.safetensors"
        own.write_bytes(b"own of %d" % version)
        made = make_release(version, model=classifier(seed=version)).files(tmp_path / "blobs", version)
        store.install(dataclasses.replace(made, own=own))
        own.unlink()  # as when the run's files go
    store.switch("digits", 1, 9)
    found = store.open("digits", store.current("digits")).own
    assert found is not None
    assert found.read_bytes() == b"own of 1"
    second = store.open("digits", 2).own
    assert second is not None
    second.write_bytes(b"damaged")
    assert store.open("digits", 2).own is None
    assert "begins with the initial values" in caplog.text
