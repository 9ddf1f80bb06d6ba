"""The tables of local objectives, server rules, reducers and encodings: no module is forgotten."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from moonfed import encodings, server_rules
from moonfed.coordinator.aggregation.robust import reducers
from moonfed.coordinator.aggregation.robust.reducers import reducer
from moonfed.encodings import number_format
from moonfed.export import methods
from moonfed.export.methods import method
from moonfed.registry import Registry
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
    assert not missing
