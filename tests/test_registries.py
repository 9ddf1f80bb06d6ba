"""The tables of local objectives, server rules, reducers and encodings: what holds for all of their entries."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from moonfed import encodings, server_rules
from moonfed.coordinator.aggregation.robust import reducers
from moonfed.coordinator.aggregation.robust.reducers import reducer
from moonfed.encodings import number_format
from moonfed.errors import InvalidInput
from moonfed.export import methods
from moonfed.export.methods import method
from moonfed.registry import Registry, Selection, setting_types
from moonfed.server_rules import server_rule


def concrete_classes(package: ModuleType, base: type) -> Iterator[type]:
    """Yield the classes defined in a package's modules that derive from the base and lack nothing."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(import_module(found.name)).values():
            is_entry = isinstance(value, type) and issubclass(value, base) and not inspect.isabstract(value)
            if is_entry and value.__module__ == found.name:
                yield value


@pytest.mark.parametrize(
    ("registry", "package", "base"),
    [
        (methods.METHODS, methods, method.Method),
        (server_rules.SERVER_RULES, server_rules, server_rule.ServerRule),
        (reducers.REDUCERS, reducers, reducer.Reducer),
        (encodings.NUMBER_FORMATS, encodings, number_format.NumberFormat),
    ],
    ids=["METHODS", "SERVER_RULES", "REDUCERS", "NUMBER_FORMATS"],
)
def test_every_module_of_the_package_is_registered(registry: Registry[object], package: ModuleType, base: type) -> None:
    entries = tuple(registry.values())
    missing = [found for found in concrete_classes(package, base) if not any(issubclass(one, found) for one in entries)]
    assert not missing, f"add a line to the table in {package.__name__}"


SELECTABLE: list[Registry[Any]] = [methods.METHODS, server_rules.SERVER_RULES, reducers.REDUCERS]
SETTINGS = [
    pytest.param(registry, name, key, value, id=f"{name}-{key}-{value}")
    for registry in SELECTABLE
    for name in registry
    for key, kind in setting_types(registry[name]).items()
    for value in {int: (-1,), float: ("nan", "inf", "-inf")}.get(kind, ())
]
MODULES = sorted({entry.__module__ for kind in (*SELECTABLE, encodings.NUMBER_FORMATS) for entry in kind.values()})


@pytest.mark.parametrize(("registry", "name", "key", "value"), SETTINGS)
def test_settings_are_checked(registry: Registry[Any], name: str, key: str, value: float | str) -> None:
    """Each class checks the range of its settings in `__post_init__`, with a sentence that names the setting."""
    with pytest.raises(InvalidInput, match=rf"\b{key}\b"):
        registry.build(Selection(name, {key: value}))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_its_entry_does(module: str) -> None:
    first = (import_module(module).__doc__ or "").partition("\n")[0]
    assert len(first.split()) > 4, "`Name: effect. Source.`"
