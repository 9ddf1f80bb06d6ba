"""Exports of a run with variants of its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from moonfed.cli.program import app
from tests.support.control_service import Control
from tests.support.trained_model import Trained


def exported(trained: Trained, control: Control, output: Path, *options: str) -> dict[str, Any]:
    arguments = ["onnx", "r", "--data", str(trained.test_file), "--output", str(output), "--insecure"]
    arguments += ["--coordinator", control.address, *options, "--json"]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    report: dict[str, Any] = json.loads(shown)["report"]
    assert report == json.loads(output.with_suffix(".report.json").read_text())
    return report
