"""moonfed-export as a user meets it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from export.cli import app
from moonfed.bundle import read_bundle
from moonfed.errors import InvalidInput

TABLE = ("bundle", "--model", "mlp", "--input", "features:4", "--classes", "no,yes")


def program(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path("proto").absolute()), str(Path.cwd())])
    return subprocess.run(
        [sys.executable, "-c", "from export.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
    )


def test_a_users_own_model_in_the_current_directory_becomes_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def model(shape, classes):\n"
        "    return nn.Linear(shape[0], 8), nn.Linear(8, 8), nn.Linear(8, classes)\n"
    )
    done = program(
        *("bundle", "--model", "mine:model", "--input", "features:4", "--classes", "3", "--method", "moon"),
        *("--set", "mu=1", "--set", "previous_models=2", "--std", "2", "--output", "b.zip"),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("b.zip holds bundle 'b', sha256 ")
    manifest = read_bundle(tmp_path / "b.zip").manifest
    assert (manifest.name, manifest.model, manifest.classes) == ("b", "mine:model", ("0", "1", "2"))
    assert (manifest.hyperparameters["mu"], manifest.previous_models) == (1.0, 2)


def test_what_is_wrong_is_one_sentence_on_standard_error_and_an_exit_code(tmp_path: Path) -> None:
    done = program(*TABLE, "--set", "mu=1", "--output", str(tmp_path / "b"))
    assert done.returncode == 2
    assert done.stderr.startswith("moonfed-export: setting 'mu' (= '1') is unknown; fedavg has batch_size, epochs")
    assert done.stderr.count("\n") == 1
    done = program("inspect", str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (3, "")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from export.cli import app; app({!r}, standalone_mode=False); sys.exit('torch' in sys.modules)"
    for arguments in (["--help"], ["bundle", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["bundle", "inspect", "evaluate", "onnx"])
def test_every_commands_help_has_an_example(command: str) -> None:
    assert f"moonfed-export {command} " in " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())


def test_inspect_says_what_is_in_a_bundle(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")
    built = runner.invoke(app, [*TABLE, "--name", "table", "--output", path, "--json"], catch_exceptions=False)
    shown = runner.invoke(app, ["inspect", path], catch_exceptions=False).output
    document = json.loads(runner.invoke(app, ["inspect", path, "--json"], catch_exceptions=False).output)
    assert json.loads(built.output)["sha256"] == document["sha256"]
    # 4*64+64 + 64*64+64 + 64*64+64 + 64*256+256 + 256*2+2
    assert document["parameters"] == 25_794
    assert document["classes"] == ["no", "yes"]
    assert "mlp, 25,794 parameters in 10 tensors" in shown
    assert "features, float32 4" in shown
    assert "2: no, yes" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "32x32"], "input is '32x32'; it must be HEIGHTxWIDTHxCHANNELS"),
        (["--input", "0x8x3"], r"input.shape is \(0, 8, 3\)"),
        (["--mean", "half"], "mean is 'half'; it must be numbers with commas"),
        (["--set", "mu"], "--set is 'mu'; it must be KEY=VALUE"),
        (["--classes", "1"], "at least two names"),
        (["--classes", "a,a"], "names that all differ"),
    ],
)
def test_bad_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, [*TABLE, "--output", str(tmp_path / "b"), *options], catch_exceptions=False)
    assert not (tmp_path / "b").exists()
