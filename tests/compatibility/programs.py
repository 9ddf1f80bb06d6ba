"""The programs of one release or the other in a federation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from moonfed.experiments.child_processes import run
from tests.federation.conftest import Federation
from tests.support.forked_process import PATCHES
from tests.support.session_cache import cached

BUNDLE = (
    *("bundle", "--model", "cnn", "--input", "8x8x1", "--classes", "10", "--projection", "none"),
    *("--set", "batch_size=32", "--set", "epochs=1"),
)


BACKUP = "--i-have-a-backup"


def upgrading() -> tuple[str, ...]:
    """Return what this release's `serve` asks for before it changes the state of an earlier one."""
    return (BACKUP,) if BACKUP in run("moonfed-coordinator", "serve", "--help") else ()


@dataclass(frozen=True)
class Programs:
    """One release's programs; `directory` is empty for this one's."""

    directory: Path = Path()

    def __call__(self, program: str, *words: str) -> str:
        return run(str(self.directory / program), *words)

    def json(self, program: str, *words: str) -> Any:
        return json.loads(self(program, *words, "--json"))

    @property
    def python(self) -> str:
        return str(self.directory / "python") if self.directory.parts else sys.executable

    def bundle(self, *options: str) -> Path:
        """Return a bundle for the digits that this release's program has built."""
        words = (*BUNDLE, *options)
        with mock.patch.dict(os.environ, {PATCHES: "tests.support.with_graph_plans"}):
            return cached(
                " ".join((str(self.directory), *words)).encode(),
                lambda path: self("moonfed-export", *words, "--output", str(path)),
            )


def stop(federation: Federation, name: str) -> int:
    """Ask a program to stop, as a service manager does; return its exit code."""
    program = federation.fleet.programs.pop(name)
    program.send_signal(signal.SIGTERM)
    return ended(program)


def ended(program: subprocess.Popen[str]) -> int:
    """Wait for the end of a program; return its exit code."""
    code = program.wait(60)
    assert program.stdout
    program.stdout.close()
    return code


@contextmanager
def programs_of(federation: Federation, programs: Programs) -> Iterator[None]:
    """Let the federation start a release's programs."""
    federation.programs = programs.directory
    yield
    federation.programs = Path()
