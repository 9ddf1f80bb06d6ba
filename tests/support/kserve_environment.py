"""An environment with KServe: it asks for psutil < 6, moonfed's tools for 6 or more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ROOT

KSERVE = "kserve==0.21.0"
ENVIRONMENT = ROOT / "build" / "kserve-client"  # kept from one time to the next
PYTHON = ENVIRONMENT / "bin" / "python"


def install() -> None:
    """Install KServe, or skip the test; of our packages it sees those that ours sees, so little is installed."""
    done = ENVIRONMENT / KSERVE
    if done.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(ENVIRONMENT)], check=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (next(ENVIRONMENT.glob("lib/python*/site-packages")) / "ours.pth").write_text("\n".join(packages))
    pins = ENVIRONMENT / "constraints.txt"
    kept = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("psutil")]
    pins.write_text("\n".join(kept))
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", str(pins), KSERVE]
    ended = subprocess.run(pip, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"{KSERVE} cannot be installed here: {ended.stderr.strip()[-300:]}")
    done.touch()


def kserve_python() -> Path:
    """Return an interpreter with KServe, or skip the test where it cannot be installed."""
    install()
    return PYTHON
