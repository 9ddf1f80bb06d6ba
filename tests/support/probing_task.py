"""A task of the sandboxed process that reports what a plan could reach: from Python, and from torch's own threads."""

from __future__ import annotations

import ctypes.util
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from moonfed.sandbox.ipc import ParentPipe

LIBRARY = ctypes.util.find_library("dl")  # as torch for CUDA does; if there is a compiler, it needs a new file


@torch.jit.script
def read(path: str) -> torch.Tensor:
    """Read a byte."""
    return torch.from_file(path, False, 1, dtype=torch.uint8)


@torch.jit.script
def read_elsewhere(path: str, threads: int) -> list[torch.Tensor]:
    """Read a file in torch's own threads."""
    waiting = [torch.jit.fork(read, path) for _ in range(threads)]  # type: ignore[no-untyped-call]
    return [torch.jit.wait(future) for future in waiting]  # type: ignore[no-untyped-call]


def open_task(settings: dict[str, Any], output: Path, parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `probe`."""
    opened = _attempt(socket.socket)  # before the first command

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(4)
        torch.randn(600, 600) @ torch.randn(600, 600)
        return {
            "kind": "probed",
            "opened": opened,
            "cwd": os.getcwd(),  # noqa: PTH109 - it is what is tested
            "files": sorted(path.name for path in Path().iterdir()),
            "read": {path: _attempt(partial(read_elsewhere, path, 8)) for path in fields["paths"]},
            "samples": _attempt(lambda: os.pwrite(settings["file"], b"poison", 0)),
        }

    return execute


def _attempt(action: Callable[[], object]) -> str:
    try:
        action()
    except (OSError, RuntimeError) as error:
        return type(error).__name__
    return "done"
