"""A process for somebody else's plan on the machine of an engineer or an operator.

It is in the strictest sandbox that the machine can enforce, and can read neither the keys that sign bundles nor
anything in the working directory, where identities are by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moonfed.bundle.manifest import PLAN_NAMES
from moonfed.plan.selection import local_interfaces
from moonfed.sandbox.child_process import ChildProcess
from moonfed.sandbox.messages import encode
from moonfed.sandbox.policy import available_level
from moonfed.sandbox.sandboxed_process import JobDirectory, Sandbox, sandboxed_process
from moonfed.signing.key_files import default_directory

CHECK = "moonfed.sandbox.check_task"
SECONDS = 600.0  # for a check


def require_safe_plan(plans: Mapping[str, bytes]) -> None:
    """Raise what a device would raise when it loads one of a bundle's plans, given by name.

    That is UnsafePlan, or TrainingFailed if it cannot be loaded. A plan that this machine cannot load, such as any
    without torch, is inspected as far as possible. This process neither parses nor loads a plan.
    """
    loadable = [PLAN_NAMES[interface] for interface in local_interfaces()]
    with plan_process(CHECK, plans, {"loadable": loadable}) as child:
        child.answer(encode("check"), "checked", seconds=SECONDS)


@contextmanager
def plan_process(
    task: str,
    contents: Mapping[str, bytes],
    settings: Mapping[str, Any] | None = None,
    files: tuple[int, ...] = (),
    file_size: int = 1 << 20,
) -> Iterator[ChildProcess]:
    """Start a process for a task, whose settings get the `directory` of these contents; it ends with the context.

    `files`: descriptors that it inherits; `file_size`: bytes that it may write to one of them.
    """
    with TemporaryDirectory(prefix="moonfed-") as root:
        directory = JobDirectory(Path(root), Path.cwd(), default_directory())
        directory.clear()
        for name, content in contents.items():
            (directory.input / name).write_bytes(content)
        sandbox = Sandbox(level=available_level(), accelerator="cpu", file_size=file_size)
        given = {"directory": str(directory.input), **(settings or {})}
        child = sandboxed_process(task, given, sandbox, directory, files)
        try:
            yield child
        finally:
            child.end()
