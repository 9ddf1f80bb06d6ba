"""The check of plans, in the sandbox: each is inspected, and then loaded if it can be; nothing of it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import GRAPH_PLAN_FILE
from moonfed.plan.graph.container import read_file
from moonfed.plan.inspection.archive import read_plan
from moonfed.sandbox.ipc import ParentPipe

TORCH = find_spec("torch") is not None
if TORCH:
    from moonfed.plan.interface import load_plan


def open_task(settings: dict[str, Any], _output: Path, _parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `check`."""
    directory = Path(settings["directory"])

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        for plan in sorted(directory.iterdir()):
            if TORCH and plan.name in settings["loadable"]:
                load_plan(plan, "cpu")
            elif plan.name == GRAPH_PLAN_FILE:
                read_file(plan)
            else:
                read_plan(plan)
        return {"kind": "checked"}

    return execute
