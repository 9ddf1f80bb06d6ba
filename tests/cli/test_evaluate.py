"""The command `evaluate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from moonfed.blobs.store import ref_of_file
from moonfed.cli.program import app
from tests.support.control_service import Control


def test_the_evaluator_needs_no_torch(control: Control, data_file: Path) -> None:
    arguments = ["evaluate", "r", "--data", str(data_file), "--insecure", "--coordinator", control.address]
    code = (
        f"import sys; from moonfed.cli.program import app; app({arguments!r}, standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("round   0  accuracy 0.")


def test_a_command_records_a_named_set_and_draws_its_matrix(control: Control, data_file: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", "r", "--data", str(data_file), "--insecure", "--coordinator", control.address]
    picture = tmp_path / "matrix.png"
    named = [*arguments, "--test-set", "night", "--picture", str(picture), "--json"]
    result = CliRunner().invoke(app, named)
    assert result.exit_code == 0, result.output
    line = json.loads(result.stdout)
    assert (line["round"], line["test_set"], line["sha256"]) == (0, "night", ref_of_file(data_file).sha256)
    assert sum(map(sum, line["confusion"])) == line["samples"]
    assert picture.exists()
    picture.unlink()
    repeated = CliRunner().invoke(app, named)  # nothing is left to score, but the picture is drawn
    assert (repeated.exit_code, repeated.stdout) == (0, "")
    assert picture.exists()
    again = CliRunner().invoke(app, [*arguments, "--test-set", "night", "--again"])
    assert again.stdout.startswith("round   0  accuracy 0.")
    assert "calibration error 0." in again.stdout
