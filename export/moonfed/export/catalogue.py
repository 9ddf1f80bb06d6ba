"""The catalogue of tasks, methods and server rules with their settings and defaults."""

from __future__ import annotations

import sys
from dataclasses import MISSING, asdict, fields
from typing import Any

from moonfed.export.bundle_recipe import default_training
from moonfed.export.methods import METHODS
from moonfed.export.optimiser import OPTIMISERS, Sgd
from moonfed.plan.training_spec import TrainingSpec
from moonfed.server_rules import SERVER_RULES
from moonfed.tasks import TASKS

Defaults = dict[str, Any]


def catalogue() -> dict[str, Any]:
    """Return a document: `tasks`, `methods` and `optimisers` with settings of `--set`, `server_rules` with theirs."""
    return {
        "tasks": {
            name: {
                "about": _about(sys.modules[task.__module__].__doc__),
                "target": task.target,
                "metric": asdict(task.metric),
                "settings": _defaults(task),
            }
            for name, task in TASKS.items()
        },
        "methods": {
            name: {
                "about": _about(sys.modules[method.__module__].__doc__),
                "federated": method.exchanges,
                "settings": _defaults(method) | training_defaults(name),
            }
            for name, method in METHODS.items()
        },
        "optimisers": {
            name: {"about": (kind.__doc__ or "").partition("\n")[0], "settings": _defaults(kind)}
            for name, kind in OPTIMISERS.items()
        },
        "server_rules": {
            name: {"about": _about(sys.modules[rule.__module__].__doc__), "settings": _defaults(rule)}
            for name, rule in SERVER_RULES.items()
        },
    }


def training_defaults(method: str) -> Defaults:
    """Return the settings that every method has: those of the optimiser and of the device's training loop."""
    return _defaults(Sgd) | _defaults(TrainingSpec) | default_training(method)


def table() -> str:
    """Format the catalogue for people, with the settings that all methods share listed once."""
    document, common = catalogue(), training_defaults("fedavg")
    lines = ["Tasks (--task) and their settings (--set)"]
    for name, entry in document["tasks"].items():
        lines += _entry(name, entry["about"], entry["settings"])
    lines += [
        "",
        "Methods (--method; solo only in simulations) and their settings (--set). Unless stated below, each has",
        f"    {_pairs(common)}",
    ]
    for name, entry in document["methods"].items():
        own = {key: value for key, value in entry["settings"].items() if common.get(key) != value}
        lines += _entry(name, entry["about"], own)
    lines += ["", "Optimisers (--optimiser) and their settings (--set)"]
    for name, entry in document["optimisers"].items():
        lines += _entry(name, entry["about"], entry["settings"])
    lines += ["", "Server rules (--server-rule) and their settings (--server-set)"]
    for name, entry in document["server_rules"].items():
        lines += _entry(name, entry["about"], entry["settings"])
    return "\n".join(lines)


def _entry(name: str, about: str, settings: Defaults) -> list[str]:
    return [f"  {name}: {about}", *([f"    {_pairs(settings)}"] if settings else [])]


def _pairs(settings: Defaults) -> str:
    return "  ".join(f"{key}={_text(value)}" for key, value in settings.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _defaults(owner: type[Any]) -> Defaults:
    """Return the fields of a settings class that have a default; `default_training` has those of the others."""
    return {item.name: item.default for item in fields(owner) if item.default is not MISSING}


def _about(docstring: str | None) -> str:
    """Return a docstring's first line without the name that it opens with; empty if there is none."""
    first = (docstring or "").strip().partition("\n")[0]
    return first.partition(": ")[2] or first
