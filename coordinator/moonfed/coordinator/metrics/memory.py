"""Memory of this process, from /proc: what it holds, and its peak since a moment. Linux only; None elsewhere."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def reset_peak() -> None:
    """Begin a new measurement of the peak; where the kernel does not allow it, the peak is the process's."""
    with suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK)


def resident() -> int | None:
    """Return the bytes of memory that this process holds."""
    return _field("VmRSS:")


def peak() -> int | None:
    """Return the most bytes of memory that this process has held since `reset_peak`."""
    return _field("VmHWM:")


def _field(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), None)
