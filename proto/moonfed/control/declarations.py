"""Declarations of settings: a frozen dataclass whose fields are `setting(default, kind, help)`.

Whatever needs all settings iterates over `declared`: the options of a command, documents, texts, the reference page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from moonfed.control.kinds import Kind

T = TypeVar("T")
_KEY = "declaration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A setting: its default as an operator writes it, its kind, and its option on a command line."""

    name: str
    default: Any
    kind: Kind[Any]
    about: str
    option: str
    metavar: str | None

    @property
    def words(self) -> str:
        """The name in a sentence."""
        return self.name.replace("_", " ")


def setting(default: object, kind: Kind[T], about: str, *, option: str = "", metavar: str | None = None) -> T:
    """Declare a setting, whose default is as an operator writes it. `option`: on a command line; otherwise the name."""
    value = kind.read("default", default)
    metadata = {_KEY: (default, kind, about, option, metavar)}
    if isinstance(value, Mapping):
        return field(default_factory=lambda: value, metadata=metadata)  # nobody changes it
    return field(default=value, metadata=metadata)


def declared(kind: type[Any]) -> dict[str, Declaration]:
    """Return a class's settings by name, in order."""
    found = {}
    for item in fields(kind):
        default, of, about, option, metavar = item.metadata[_KEY]
        found[item.name] = Declaration(
            name=item.name,
            default=default,
            kind=of,
            about=about,
            option=option or f"--{item.name.replace('_', '-')}",
            metavar=metavar,
        )
    return found
