"""The process in which plans run: it enters the sandbox, then executes its parent's commands.

It is started by `sandboxed_process`, whose `SandboxSpec` and process id are its arguments. Access to files is
restricted before the imports, because libraries start threads when they are imported, and Landlock covers only a thread
and the threads that it starts. System calls and resources are restricted after the imports, in all threads. Only then
is a command read.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from moonfed.available_memory import ROOT, held_memory
from moonfed.sandbox.ipc import LogForwarder, ParentPipe, die_with, serve
from moonfed.sandbox.policy import Level, Policy, confine_files, confine_process

THREAD_BYTES = 32 << 20  # per core, of the stacks and heaps of threads, mostly unused
THREAD_ADDRESSES = 192 << 20  # per core, that the C library reserves for heaps of threads
Execute = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A task, and the files and resources that it may use."""

    task: str  # a module: its `open_task(settings, output, parent)` returns the function for `serve`
    level: Level
    read: tuple[str, ...]
    output: str  # the directory that it may write to, which is also its working directory
    private: tuple[str, ...] = ()  # directories that it must not read, wherever libraries are
    memory: int | None = None  # bytes beyond those of the libraries and of threads; None: unlimited
    mapped: int = 0  # bytes of inherited files, which only take addresses
    file_size: int | None = None  # bytes of each file
    cuda: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)  # the task's

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(asdict(self))

    @property
    def policy(self) -> Policy:
        """Return the permitted files and resources; `memory` is in addition to the present use."""
        cores, memory = os.cpu_count() or 1, self.memory
        return Policy(
            read=tuple(map(Path, self.read)),
            write=(Path(self.output),),
            private=tuple(map(Path, self.private)),
            data=None if memory is None else held_memory(ROOT, "VmData") + cores * THREAD_BYTES + memory,
            # Twice as much, because files that are mapped take addresses, too.
            addresses=None
            if memory is None
            else held_memory(ROOT, "VmSize") + cores * THREAD_ADDRESSES + 2 * memory + self.mapped,
            file_size=self.file_size,
            cuda=self.cuda,
        )


def main() -> None:
    """Enter the sandbox and execute the parent's commands until its pipe closes."""
    _, spec_text, parent = sys.argv
    spec = SandboxSpec(**json.loads(spec_text))
    die_with(int(parent))
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, this process goes first
    confine_files(spec.level, spec.policy)
    pipe = ParentPipe()
    logging.basicConfig(handlers=[LogForwarder(pipe)], level=logging.INFO, format="%(message)s")
    serve(pipe, _opened(spec, pipe))


def _opened(spec: SandboxSpec, pipe: ParentPipe) -> Execute:
    """Import the task, restrict system calls and resources, and open the task; an error answers every command."""
    try:
        task = importlib.import_module(spec.task)
        gc.freeze()  # imported modules remain: the garbage collector need not search them while a plan is inspected
        confine_process(spec.level, spec.policy)
        execute: Execute = task.open_task(spec.settings, Path(spec.output), pipe)
    except Exception as error:
        failure = error

        def fail(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
            raise failure

        return fail
    return execute


if __name__ == "__main__":
    main()
