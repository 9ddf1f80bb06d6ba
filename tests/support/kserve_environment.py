"""An environment with KServe: it asks for psutil < 6, moonfed's tools for 6 or more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ROOT

KSERVE = "kserve==0.21.0"
ENVIRONMENT = ROOT / "build" / "kserve-client"  # kept from one time to the next


def kserve_python(directory: Path) -> Path:
    """An interpreter with KServe; of our packages it sees those that ours sees, so little is installed.

    `directory`: an empty one. Skips the test if KServe cannot be installed.
    """
    found = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / KSERVE
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(ENVIRONMENT)], check=True)
        packages = [path for path in sys.path if path.endswith("site-packages")]
        (next(ENVIRONMENT.glob("lib/python*/site-packages")) / "ours.pth").write_text("\n".join(packages))
        pins = directory / "constraints.txt"
        kept = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("psutil")]
        pins.write_text("\n".join(kept))
        install = [str(found), "-m", "pip", "install", "--quiet", "--constraint", str(pins), KSERVE]
        ended = subprocess.run(install, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"{KSERVE} cannot be installed here: {ended.stderr.strip()[-300:]}")
        done.touch()
    return found
