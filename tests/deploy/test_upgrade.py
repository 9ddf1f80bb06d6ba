"""The pages about upgrades and Kubernetes name commands, panels, units and files that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from moonfed.cli.program import app as export_app
from moonfed.coordinator.cli.program import app as coordinator_app
from moonfed.edge_client.cli import app as client_app
from moonfed.experiments.cli import app as experiments_app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = {
    "moonfed-coordinator": coordinator_app,
    "moonfed-client": client_app,
    "moonfed-export": export_app,
    "moonfed-experiments": experiments_app,
}
UNITS = {"coordinator": "moonfed-coordinator.service", "client": "moonfed-client.service"}


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def commands(name: str) -> list[list[str]]:
    """Return the words of every command line of ours in a page."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page(name), re.DOTALL)).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in re.split(r"\n|; do |; done", blocks)]
    executed = [
        words[words.index("--") + 1 :] if words[0:1] in (["kubectl"], ["runuser"]) and "--" in words else words
        for words in lines
    ]
    return [words for words in executed if words and words[0].rpartition("/")[2] in PROGRAMS]


@pytest.mark.parametrize(("name", "number"), [("upgrade", 7), ("kubernetes", 5)])
def test_every_command_line_is_valid(name: str, number: int) -> None:
    found = commands(name)
    assert len(found) == number
    for program, *words in found:
        command: Any = typer.main.get_command(PROGRAMS[program.rpartition("/")[2]])
        while hasattr(command, "commands"):
            command, *words = (command.commands[words[0]], *words[1:])
        with command.make_context(program, list(words)) as context:
            assert not context.args, words


def test_panels_to_watch_exist() -> None:
    rows = re.findall(r"^\| (?:\[(\w+)\]\(monitoring\.md\)|(\w+)) \| (.*;.*) \|$", page("upgrade"), re.MULTILINE)
    assert len(rows) == 3
    for linked, plain, panels in rows:
        dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / f"moonfed-{linked or plain}.json").read_text())
        titles = {panel["title"] for panel in dashboard["panels"]}
        assert set(panels.split("; ")) <= titles


@pytest.mark.parametrize("program", UNITS)
def test_a_unit_runs_what_the_link_leads_to_and_has_time_to_end(program: str) -> None:
    unit = (DEPLOY / UNITS[program]).read_text()
    assert f"ExecStart=/opt/moonfed/bin/moonfed-{program} " in unit
    assert f"systemctl restart moonfed-{program}\n" in page("upgrade")
    assert "TimeoutStopSec=30" in unit
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["coordinator"]["stop_grace_period"] == "30s"
