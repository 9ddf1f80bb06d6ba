"""A run with the setting `--patience`, for a copy of the sources that has it: `python -m tests.support.added_setting`.

Prints where the setting was found: an object in JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from moonfed.client import Coordinator
from moonfed.control.recipe import read_recipe_file
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import from_document
from tests.support import coordinator, coordinator_programs, shared_bundles  # noqa: F401 - for the simulation
from tests.support.console_process import console_process, log_in
from tests.support.coordinator_programs import Programs
from tools.reference.__main__ import generated

SHORT = {"epochs": 1, "batch_size": 32}


def main(directory: Path) -> None:
    coordinator_programs.ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]  # the copy's parts, in children too
    with ExitStack() as stack:
        programs = Programs(directory, stack)
        programs.serve("--name", "localhost")
        found = {what: find(programs) for what, find in WAYS.items()}
    print(json.dumps(found))


def command_line(programs: Programs) -> int:
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    words = ("run", "start", bundle, "--name", "a", "--patience", "3", "--json")
    return patience(json.loads(programs.command(*words))["settings"])


def consumer(programs: Programs) -> int:
    return int(programs.operator().run("a").waiting.rpartition("; patient for ")[2].removesuffix(" s"))


def wire(programs: Programs) -> int:
    return patience(json.loads(programs.operator().run("a").settings))


def database(programs: Programs) -> int:
    with closing(sqlite3.connect(programs.state / "coordinator.db")) as connection:
        (text,) = connection.execute("SELECT settings FROM runs WHERE run = 'a'").fetchone()
    return patience(json.loads(text))


def as_json(programs: Programs) -> int:
    return patience(json.loads(programs.command("run", "show", "a", "--json"))["settings"])


def text(programs: Programs) -> int:
    (line,) = [line for line in programs.command("run", "show", "a", "--all").splitlines() if "patience" in line]
    return int(line.partition("patience ")[2].partition(" s")[0])


def console(programs: Programs) -> int:
    with console_process("--identity", str(programs.state / "operator")) as process:
        return patience(log_in(process, process.token).get("/api/runs/a")["settings"])


def python_client(programs: Programs) -> int:
    with Coordinator(programs.state / "operator") as client:
        again = client.start(programs.tmp / "bundle", name="b", recipe=client.run("a").settings)
        assert again.settings == client.run("a").settings
        return patience(client.start(programs.tmp / "bundle", name="c", patience=3).settings.to_document())


def simulation(programs: Programs) -> int:
    document = {"dataset": "wine", "model": "mlp", "parties": 2, "beta": 5.0, "rounds": 1, "settings": SHORT}
    output = programs.tmp / "simulated"
    run_simulation(from_document(document, ["patience=3"]), output, engine=EngineSettings(workers=1))
    return patience(read_recipe_file(Layout(output).run_recipe))


def reference(programs: Programs) -> int:
    pages = generated()
    assert "- `--patience N`: Seconds to be patient for." in pages["moonfed-coordinator.md"]
    return 3 * ("| `patience` | `--patience` | `0` | Seconds to be patient for. |" in pages["settings.md"])


def patience(settings: Mapping[str, Any]) -> int:
    return int(settings["patience"])


WAYS: Mapping[str, Callable[[Programs], int]] = {
    "command line": command_line,
    "consumer": consumer,
    "wire": wire,
    "database": database,
    "--json": as_json,
    "run show": text,
    "console": console,
    "Python client": python_client,
    "simulation": simulation,
    "reference page": reference,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
