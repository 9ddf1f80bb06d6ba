"""The process title, which `ps` and `top` show instead of the command line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_ARG_START, _ARG_END = 48 - 3, 49 - 3  # fields of proc_pid_stat(5); the first three precede the split


def set_process_title(title: str) -> None:
    """Replace this process's command line in memory, as setproctitle does; do nothing where Linux's /proc is absent."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        written = title.encode()[: max(0, end - start - 1)]
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(written.ljust(end - start, b"\0"))
