"""moonfed-export as a process: output and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.export.methods import METHODS
from tests.cli.conftest import TABLE, program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]


def test_errors_are_one_sentence_on_stderr_with_an_exit_code(tmp_path: Path) -> None:
    done = program(*TABLE, "--set", "mu=1", "--output", str(tmp_path / "b"))
    assert done.returncode == 2
    assert done.stderr.startswith(
        "moonfed-export: setting 'mu' (= '1') is unknown; fedavg with sgd has batch_size, class_weights"
    )
    assert done.stderr.count("\n") == 1
    done = program("inspect", str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (3, "")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from moonfed.cli.program import app; "
        "app({!r}, standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    for arguments in (["--help"], ["bundle", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_program_help_has_examples() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "Example: moonfed-export bundle --model" in shown


@pytest.mark.parametrize(
    "command",
    [
        "bundle",
        "methods",
        "inspect",
        "sign",
        "evaluate",
        "onnx",
        "repository",
        "follow",
        "roll-back",
        "serve",
        "predict",
    ],
)
def test_every_command_help_has_an_example(command: str) -> None:
    assert f"moonfed-export {command} " in " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())


def test_help_names_every_method() -> None:
    shown = " ".join(CliRunner().invoke(app, ["bundle", "--help"]).output.split()).replace("- ", "-")
    assert f"{', '.join(name for name in METHODS if METHODS[name].exchanges)}." in shown
