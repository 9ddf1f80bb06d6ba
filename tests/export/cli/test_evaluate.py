"""The command `evaluate`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.control_service import Control


def test_the_evaluator_needs_no_torch(control: Control, data_file: Path) -> None:
    arguments = ["evaluate", "r", "--data", str(data_file), "--insecure", "--coordinator", control.address]
    code = (
        f"import sys; from moonfed.export.cli.program import app; app({arguments!r}, standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("round   0  accuracy 0.")
