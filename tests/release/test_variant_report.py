"""The report on variants, and its table."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.export.binding import read_metadata
from moonfed.release.variant_report import table
from tests.support.control_service import Control
from tests.support.trained_model import Trained
from tests.support.variant_exports import exported

pytestmark = pytest.mark.slow


def test_the_report_names_the_written_files(trained: Trained, trained_run: Control, tmp_path: Path) -> None:
    output = tmp_path / "digits.onnx"
    options = ("--variant", "all", "--calibration", str(trained.calibration_file), "--keep", "smaller")
    report = exported(trained, trained_run, output, *options)
    assert (report["run"], report["round"], report["max_drop"]) == ("r", 1, 0.5)
    assert report["data"] == {
        "sha256": hashlib.sha256(trained.test_file.read_bytes()).hexdigest(),
        "samples": len(trained.test),
    }
    assert report["calibration"] == {
        "sha256": hashlib.sha256(trained.calibration_file.read_bytes()).hexdigest(),
        "samples": 200,
    }
    assert report["measured_on"]["onnxruntime"] == onnxruntime.__version__
    entries = report["variants"]
    files = {entry["file"] for entry in entries}
    assert files == {"digits.onnx", "digits.float16.onnx", "digits.int8.onnx"}
    for entry in entries:
        content = (tmp_path / entry["file"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        (probabilities,) = session.run(None, {"inputs": trained.test.inputs})
        right = np.asarray(probabilities).argmax(axis=1) == trained.test.labels
        assert entry["score"] == pytest.approx(float(right.mean()), abs=1e-12)
        assert entry["drop"] == pytest.approx(100 * (entries[0]["score"] - entry["score"]), abs=1e-9)
        chosen = np.asarray(probabilities)[np.arange(len(right)), trained.test.labels].astype(np.float64)
        assert entry["loss"] == pytest.approx(-float(np.log(chosen).mean()), rel=1e-4)
    entries[1]["drop"] = -0.001
    assert table(report).splitlines()[2].split()[3] == "0.00"


def test_the_table_shows_each_decision(trained: Trained, trained_run: Control, tmp_path: Path) -> None:
    arguments = ["onnx", "r", "--data", str(trained.test_file), "--output", str(tmp_path / "d.onnx"), "--insecure"]
    arguments += ["--coordinator", trained_run.address, "--variant", "float16", "--bound", "0.25", "--keep", "smaller"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    steps = ["making float16", f"timing float32, float16, and scoring them on {len(trained.test):,} samples"]
    assert done.stderr.splitlines() == [f"moonfed-export: {step}" for step in steps]
    lines = done.stdout.splitlines()
    assert read_metadata((tmp_path / "d.onnx").read_bytes())["parity_bound"] == "0.25"
    assert " ".join(lines[1].split()) == "variant bytes accuracy drop loss difference ms batch 1 ms batch 32 ms load"
    assert [line.split()[0] for line in lines[2:4]] == ["float32", "float16"]
    assert lines[4] == "float32: kept, the reference for the others"
    assert lines[5].startswith("float16: kept, 1.9")
