"""The memory of a fresh trainer, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

TRAINER_SCRIPT = """\
import moonfed.sandbox.sandboxed, moonfed.edge_client.worker.trainer
from moonfed.available_memory import resident_memory
print(resident_memory())
"""  # the trainer until it measures its own memory


def trainer_memory() -> int:
    """Return the bytes that a fresh trainer of `moonfed-client run` holds; this process may hold more or less."""
    return int(subprocess.run([sys.executable, "-c", TRAINER_SCRIPT], stdout=subprocess.PIPE, check=True).stdout)
