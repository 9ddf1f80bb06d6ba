"""A state directory of another release is left as it is, by every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moonfed.command_line.exit_codes import exit_code
from moonfed.edge_client.predictor import Predictor
from moonfed.edge_client.state.state_version import FORMAT, note_version, require_readable_state
from moonfed.edge_client.state.trust import pin
from moonfed.errors import InvalidInput, ResourceExhausted, VersionMismatch
from moonfed.signing.key_files import create_keys
from tests.support.refusals import refused
from tests.support.signatures import TRUST

NEWER = "moonfed-device/2"


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return all files with their modes."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in (directory, *directory.rglob("*"))
    }


def test_a_new_directory_is_private_and_notes_its_version(tmp_path: Path) -> None:
    require_readable_state(tmp_path / "state")
    note_version(tmp_path / "state")
    assert (tmp_path / "state" / "format").read_text() == f"{FORMAT}\n"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    before = files_of(tmp_path)
    note_version(tmp_path / "state")
    assert files_of(tmp_path) == before


def test_a_device_that_trusts_keys_has_noted_its_version(tmp_path: Path) -> None:
    pin(tmp_path / "state", TRUST)
    assert (tmp_path / "state" / "format").read_text() == f"{FORMAT}\n"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"moonfed-bundle/4\n"])
def test_a_damaged_note_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "format").write_bytes(content)
    with refused(InvalidInput, "format"):
        note_version(tmp_path)
    assert (tmp_path / "format").read_bytes() == content


def test_a_note_that_never_ends_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "format").write_bytes(bytes(2000))
    with pytest.raises(ResourceExhausted):
        require_readable_state(tmp_path)


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The state of a device that a later release has run."""
    state = tmp_path / "state"
    note_version(state)
    (state / "format").write_text(f"{NEWER}\n")
    for name in ("lock", "connected-to", "runs/digits/1-1/personal.safetensors", "repository/digits/.new.1/model.onnx"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(f"{name} of a later release")
    state.chmod(0o750)
    return state


COMMANDS = {
    "enrol": ("enrol", "moonfed-join-1.abc"),
    "trust": ("trust", "{trust}"),
    "run": ("run", "--insecure", "--coordinator", "localhost:1"),
    "run in no sandbox": ("run", "--insecure", "--coordinator", "localhost:1", "--sandbox", "off"),
    "doctor": ("doctor",),
    "predict": ("predict", "{trust}"),
    "profile": ("profile", "{trust}"),
    "check": ("check", "{trust}", "--data", "{trust}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_touches_the_state_of_a_later_release(newer: Path, tmp_path: Path, name: str) -> None:
    create_keys(tmp_path / "keys")
    command = [word.format(trust=tmp_path / "keys" / "trust.json") for word in COMMANDS[name]]
    before = files_of(newer)
    ended = subprocess.run(
        [sys.executable, "-c", "from moonfed.edge_client.cli import main; main()", *command, "--state", newer],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == exit_code(VersionMismatch()) == 6, ended.stderr
    assert NEWER in ended.stderr
    assert FORMAT in ended.stderr
    assert files_of(newer) == before


def test_a_predictor_does_not_open_it(newer: Path) -> None:
    with refused(VersionMismatch, "format", NEWER):
        Predictor(newer)
