"""The help of every program, and the completion of its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import typer

from moonfed.cli.program import app as export
from moonfed.coordinator.cli.program import app as coordinator
from moonfed.edge_client.cli import app as client
from moonfed.experiments.cli import app as experiments

Command: TypeAlias = Any  # of typer, or of click, by typer's release
PROGRAMS = {
    "moonfed-coordinator": coordinator,
    "moonfed-client": client,
    "moonfed-experiments": experiments,
    "moonfed-export": export,
}


def commands(command: Command, path: str) -> Iterator[tuple[str, Command]]:
    """Yield a program, its groups and its commands by what a user types."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


ALL = [
    pytest.param(command, id=path)
    for name, app in PROGRAMS.items()
    for path, command in commands(typer.main.get_command(app), name)
]


@pytest.mark.parametrize("command", ALL)
def test_help_shows_no_types_of_python_and_names_arguments_in_capitals(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = typer.Context(command)
    shown = command.get_help(context)
    assert not re.search(r"list\[|<[a-z]", shown)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    assert [param.name for param in arguments if not param.metavar or not re.match(r"[A-Z]{3}", param.metavar)] == []


@pytest.mark.parametrize("command", [each for each in ALL if hasattr(each.values[0], "commands")])
def test_help_of_a_group_has_whole_summaries(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = command.get_help(typer.Context(command))
    listed = " ".join(shown.partition("Commands:")[2].split())
    for name, below in command.commands.items():
        summary = " ".join(below.help.split("\n\n")[0].split())
        assert f"{name} {summary.partition('. ')[0].removesuffix('.')}." in listed
    assert "..." not in listed
    assert all(len(line) <= 80 for line in shown.partition("Commands:")[2].splitlines())


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("name", PROGRAMS)
def test_shells_complete_commands(name: str) -> None:
    program = Path(sys.executable).with_name(name)
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the tests' own shell may be sh
    arguments = [str(program), "--show-completion", "bash"]
    script = subprocess.run(arguments, capture_output=True, text=True, env=named, check=True).stdout
    assert f"{variable}=complete_bash {name}" in re.sub(r"\s+", " ", script).replace("$1", name)
    words = {"COMP_WORDS": f"{name} ", "COMP_CWORD": "1", variable: "complete_bash"}
    done = subprocess.run([program], capture_output=True, text=True, env=os.environ | words, check=False)
    listed = list(typer.main.get_command(PROGRAMS[name]).commands)  # type: ignore[attr-defined] # a group
    assert done.stdout.split() == listed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--wrong"], "No such option: --wrong"),
        (["wrong"], "No such command 'wrong'"),
        (["run", "wrong"], "No such command 'wrong'"),
        (["run", "stop"], "Missing argument 'RUN'"),
        (["serve", "--fleet-port", "x"], "Invalid value for '--fleet-port': "),
    ],
)
def test_a_wrong_command_line_names_its_page(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        coordinator(words, prog_name="moonfed-coordinator")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"Error: {message}")
    assert last.endswith(" (docs: errors/invalid-input)")
