"""Processes that may not read what file permissions forbid, although the tests may run as root."""

from __future__ import annotations

import os
import subprocess
import sys

_CAPABILITIES = "-dac_override,-dac_read_search"  # with which root reads everything
_PREFIX = ("setpriv", f"--bounding-set={_CAPABILITIES}", f"--inh-caps={_CAPABILITIES}") if os.geteuid() == 0 else ()


def run_unprivileged(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a Python script."""
    words = [*_PREFIX, sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)
