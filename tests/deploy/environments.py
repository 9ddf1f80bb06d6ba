"""Environments with chosen versions, in which moonfed's programs run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from moonfed.experiments import child_processes
from moonfed.experiments.child_processes import ChildProcesses
from tools.lock_requirements import CONSTRAINTS

UV = (sys.executable, "-m", "uv")


def new_environment(path: Path, *install: str | Path) -> None:
    """Make an environment with what `uv pip install` gets these words."""
    subprocess.run([*UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, path], check=True)
    subprocess.run([*UV, "pip", "install", "--quiet", "--python", path, *install], check=True)


def install_torch(path: Path, *install: str | Path) -> None:
    """Install torch with pip, whose configuration may name a build of it."""
    pip = [sys.executable, "-m", "pip", "--python", str(path / "bin" / "python"), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *install], check=True)


def pinned_except(*names: str) -> list[str]:
    """Return the lines of constraints.txt without those of some distributions."""
    lines = CONSTRAINTS.read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] not in names]


@contextmanager
def programs_in(
    environments: Mapping[str, Path], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChildProcesses]:
    """Run commands in the directory, each program in its environment; those without one in the tests' own."""
    ours = child_processes.our_program

    def program(name: str) -> str:
        return str(environments[name] / "bin" / name) if name in environments else ours(name)

    monkeypatch.setattr(child_processes, "our_program", program)
    monkeypatch.chdir(directory)
    with ChildProcesses(directory / "logs") as programs:
        yield programs
