from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.export.conftest import bundle, control, data, data_file

__all__ = ["bundle", "control", "data", "data_file"]  # fixtures


TABLE = ("bundle", "--model", "mlp", "--input", "features:4", "--classes", "no,yes")


def program(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path("proto").absolute()), str(Path.cwd())])
    return subprocess.run(
        [sys.executable, "-c", "from moonfed.cli.program import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
    )
