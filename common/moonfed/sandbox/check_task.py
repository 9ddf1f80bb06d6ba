"""The check of a plan, in the sandbox: it is inspected, and then loaded if torch is installed; nothing of it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import PLAN_FILE
from moonfed.plan.inspection.archive import read_plan
from moonfed.sandbox.ipc import ParentPipe

TORCH = find_spec("torch") is not None
if TORCH:
    from moonfed.plan.interface import load_plan


def open_task(settings: dict[str, Any], _output: Path, _parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `check`."""
    plan = Path(settings["directory"], PLAN_FILE)

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if TORCH:
            load_plan(plan, "cpu")
        else:
            read_plan(plan)
        return {"kind": "checked"}

    return execute
