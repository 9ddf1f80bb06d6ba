"""Tutorials as tests: the commands of a document's shell blocks, run in order with real programs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from moonfed.errors import MoonfedError
from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.sandbox.policy import available_level

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"^```(?:python|toml)\n# (\S+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def save_files(document: Path, directory: Path, adaptations: Mapping[str, str]) -> None:
    """Save the files that a document has the reader save: code blocks that begin with `# FILE`."""
    for name, content in SAVED.findall(document.read_text()):
        (directory / name).write_text(_adapted(content, adaptations))


def _adapted(text: str, adaptations: Mapping[str, str]) -> str:
    for old, new in adaptations.items():
        text = text.replace(old, new)
    return text


def _turns(line: str) -> list[str]:
    """Return the commands that a loop such as `for i in 1 2; do X $i; done` runs; a line without one is a command."""
    if not (loop := LOOP.fullmatch(line)):
        return [line]
    name, values, body = loop.groups()
    return [body.rstrip("; ").replace(f"${name}", value) for value in values.split()]


def follow(
    document: Path, fleet: ChildProcesses, adaptations: Mapping[str, str], *, patient: Collection[str] = ("predict",)
) -> dict[str, str]:
    """Save a tutorial's files, run its commands, both with these replacements, and return what each prints.

    Commands that contain a word of `patient` are repeated until they succeed. Coordinators get free ports.
    """
    save_files(document, Path(), adaptations)
    printed = dict[str, str]()
    for command in commands(document):
        adapted = _adapted(command, adaptations)
        if command.startswith("moonfed-coordinator serve"):
            adapted = adapted.replace(" &", " --fleet-port 0 --enrolment-port 0 &")
        waits = any(word in command for word in patient)
        printed[command] = (execute_patiently if waits else execute)(adapted, fleet)
    return printed


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
