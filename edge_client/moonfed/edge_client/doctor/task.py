"""The doctor's checks of torch and the accelerator, in the sandboxed process that plans run in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.errors import TrainingFailed
from moonfed.sandbox.ipc import ParentPipe


def open_task(settings: dict[str, Any], output: Path, parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the commands `torch` and `accelerator`; `settings` names the accelerator."""

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if kind == "torch":
            return {"kind": kind, "version": str(torch.__version__), "threads": torch.get_num_threads()}
        return {"kind": kind, "name": _multiply(str(settings["accelerator"]))}

    return execute


def _multiply(accelerator: str) -> str:
    """Multiply two matrices on the accelerator, compare the product with the CPU's, and return the name of the GPU."""
    require_accelerator(accelerator)
    left, right = torch.arange(64.0).reshape(8, 8), torch.eye(8) * 2
    product = (left.to(accelerator) @ right.to(accelerator)).cpu()
    if not torch.equal(product, left * 2):
        raise TrainingFailed(f"{accelerator} multiplies matrices wrongly")
    return torch.cuda.get_device_name() if accelerator == "cuda" else ""
