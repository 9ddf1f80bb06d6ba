"""ONNX Runtime neither reports models nor writes an identifier of the device, whichever module imports it first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"^ *(import|from) onnxruntime\b", re.MULTILINE)
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import onnxruntime
from onnxruntime.datasets import get_example
onnxruntime.InferenceSession(get_example("mul_1.onnx"), providers=["CPUExecutionProvider"])
"""


def importers() -> list[str]:
    """The names of the modules that import onnxruntime."""
    files = [file for file in ROOT.glob("*/moonfed/**/*.py") if IMPORT.search(file.read_text())]
    return sorted(".".join(file.relative_to(ROOT).with_suffix("").parts[1:]) for file in files)


def written_files(home: Path, *modules: str) -> list[str]:
    """Import the modules, open a session, and return the files written to the user's directory.

    The environment is nearly empty, because ONNX Runtime also sends nothing in tests and in continuous integration.
    """
    environment = {"HOME": str(home), "PATH": os.defpath, "MPLCONFIGDIR": str(home.parent)}
    subprocess.run([sys.executable, "-c", PROGRAM, *modules], env=environment, check=True, capture_output=True)
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_all_importers_are_known() -> None:
    assert {"moonfed.models.onnx_runtime", "moonfed.export.scoring", "moonfed.edge_client.doctor.checks"} <= {
        *importers()
    }


@pytest.mark.parametrize("module", importers())
def test_no_module_lets_onnx_runtime_write_an_identifier(module: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert written_files(home, module) == []


def test_without_these_modules_it_would(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if not (found := written_files(home)):
        pytest.skip("this release of ONNX Runtime has no telemetry")
    assert "deviceid" in found
