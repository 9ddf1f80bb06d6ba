"""The page of settings: of a run, its reducers, its bundle's method and server rule, a simulation, the environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

import typer

from moonfed.control.run_settings import RUN_SETTINGS
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.experiments.simulation import TABLES, Simulation
from moonfed.export.catalogue import catalogue, training_defaults
from tools.reference.commands import PROGRAMS
from tools.reference.markdown import GENERATED, NONE, code, plain, prose, table

INTRODUCTION = """Every setting, its default and what it does. Those of a run are options of
[`moonfed-coordinator run start`](moonfed-coordinator.md#run-start) and keys of a recipe in TOML, which
[`moonfed-experiments simulate`](../simulation.md#recipe) reads, too."""


def settings_page() -> str:
    """Return the page."""
    return "\n".join(
        ["# Settings\n", GENERATED, prose(INTRODUCTION), *_run(), *_bundle(), *_simulation(), *_environment()]
    )


def _run() -> Iterator[str]:
    options = {option.name: option for option in _options("moonfed-coordinator", ("run", "start"))}
    yield "## A run\n"
    yield prose(
        "[Runs](../runs.md) and [robust aggregation](../robust-aggregation.md) explain them; `moonfed-coordinator run "
        "show RUN --recipe` prints a run's. Those with several values are tables of a recipe."
    )
    yield table(
        ("key", "option", "default", "effect"),
        [
            (code(name), code(item.option), code(item.default), options[name].help)
            for name, item in RUN_SETTINGS.items()
        ],
    )
    yield "## Reducers\n"
    yield prose("Set with `--reducer-set KEY=VALUE`, or in a recipe's table `[reducer_settings]`.")
    yield table(("reducer", "effect", "settings"), _entries(REDUCERS))


def _bundle() -> Iterator[str]:
    document, common = catalogue(), training_defaults("fedavg")
    yield "## Methods\n"
    yield prose(
        "Chosen with `moonfed-export bundle --method` (`solo` only in simulations), set with `--set KEY=VALUE`; "
        f"[Methods](../methods.md) helps to choose. Unless its row says otherwise, a method has {_pairs(common)}."
    )
    rows = []
    for name, entry in document["methods"].items():
        own = {key: value for key, value in entry["settings"].items() if common.get(key) != value}
        rows.append((code(name), _sentence(entry["about"]), _pairs(own)))
    yield table(("method", "effect", "settings of its own"), rows)
    yield "## Server rules\n"
    yield prose("Chosen with `moonfed-export bundle --server-rule`, set with `--server-set KEY=VALUE`.")
    rows = [
        (code(name), _sentence(rule["about"]), _pairs(rule["settings"]))
        for name, rule in document["server_rules"].items()
    ]
    yield table(("rule", "effect", "settings"), rows)


def _simulation() -> Iterator[str]:
    yield "## A simulation\n"
    yield prose(
        "Keys of a recipe for `moonfed-experiments simulate`, besides those of [a run](#a-run), with the defaults of a "
        "simulation without `--bundle`. [Simulate a fleet](../simulation.md#recipe) explains them."
    )
    yield table(
        ("key", "default"),
        [(code(item.name), code(_default(item))) for item in fields(Simulation) if item.name not in (*TABLES, "run")],
    )


def _environment() -> Iterator[str]:
    yield "## Environment variables\n"
    yield prose("Each sets the default of an option; the option on the command line overrides it.")
    found: dict[str, tuple[set[str], str, str]] = {}
    for program in PROGRAMS:
        for option in _options(program):
            if option.envvar:
                programs = found.setdefault(option.envvar, (set(), option.opts[0], option.help))[0]
                programs.add(program)
    rows = [
        (code(name), code(option), ", ".join(sorted(programs)), about)
        for name, (programs, option, about) in sorted(found.items())
    ]
    yield table(("variable", "option", "programs", "effect"), rows)


def _options(program: str, path: tuple[str, ...] | None = None) -> Iterator[Any]:
    """Yield the options of one command of a program, or of all."""
    group: Any = typer.main.get_command(import_module(PROGRAMS[program]).app)
    if path is not None:
        for word in path:
            group = group.commands[word]
    yield from _options_below(group)


def _options_below(command: Any) -> Iterator[Any]:
    for child in getattr(command, "commands", {}).values():
        yield from _options_below(child)
    yield from (param for param in command.params if param.param_type_name == "option")


def _default(item: Any) -> Any:
    return None if item.default is MISSING else item.default


def _entries(registry: Mapping[str, type[Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield name, effect and settings of each entry of a registry."""
    for name, kind in registry.items():
        about = (sys.modules[kind.__module__].__doc__ or "").strip().partition("\n")[0]
        settings = {item.name: item.default for item in fields(kind) if item.default is not MISSING}
        yield code(name), _sentence(about.partition(": ")[2] or about), _pairs(settings)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _pairs(settings: Mapping[str, object]) -> str:
    return ", ".join(f"`{key}={plain(value)}`" for key, value in settings.items()) or NONE
