"""Tutorials as tests: the commands of a document's shell blocks, run in order with real programs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from moonfed.errors import MoonfedError
from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.sandbox.policy import available_level

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOP = re.compile(r"for (\w+) in ([^;]*); do (.*) done")
PATIENCE = 120.0  # seconds
READY = ("serve",)  # commands in the background that print a line when they are ready


def commands(document: Path) -> list[str]:
    """Return the commands of the shell blocks, with the turns of loops one by one."""
    return commands_of(document.read_text())


def commands_of(document: str) -> list[str]:
    """Return the commands of a document's text; see `commands`."""
    lines = shell_lines(document)
    return [command for line in lines for command in _turns(line)]


def shell_lines(document: str) -> list[str]:
    """Return the lines of a document's shell blocks, without comments."""
    text = "".join(BLOCK.findall(document)).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _turns(line: str) -> list[str]:
    """Return the commands that a loop such as `for i in 1 2; do X $i; done` runs; a line without one is a command."""
    if not (loop := LOOP.fullmatch(line)):
        return [line]
    name, values, body = loop.groups()
    return [body.rstrip("; ").replace(f"${name}", value) for value in values.split()]


def execute(command: str, fleet: ChildProcesses) -> str:
    """Run one command in the working directory, or start it if it ends with &; return what it prints."""
    words = shlex.split(command)
    background = words[-1] == "&"
    words = words[:-1] if background else words
    target = None
    if ">" in words:
        target, words = Path(words[-1]), words[: words.index(">")]
    if words[0] == "moonfed-client" and words[1] in ("run", "predict"):
        words += ["--sandbox", available_level()]
    if background:
        name = f"{len(fleet.programs)}-{words[1]}"
        fleet.start(name, *words)
        return fleet.first_line(name) if words[1] in READY else ""
    printed = run(*words) if words[0].startswith("moonfed-") else _other(words)
    if target:
        target.write_text(printed)
    return printed


def execute_patiently(command: str, fleet: ChildProcesses) -> str:
    """Run a command until it succeeds: a device may need a moment to install its release."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(MoonfedError):
            return execute(command, fleet)
        time.sleep(0.2)
    return execute(command, fleet)


def _other(words: list[str]) -> str:
    program = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout
