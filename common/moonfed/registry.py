"""Registries of exchangeable parts: local objectives, server rules, reducers and encodings, each a class by its name.

A registry lists moonfed's own entries as `module:Class` and adds those that installed packages declare as entry points
of its group. Names are known without importing anything; a class is imported and checked when it is first looked up.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from moonfed.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Value = bool | int | float | str
SETTING_TYPES = (bool, int, float, str)
T = TypeVar("T")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
OURSELVES = "moonfed itself"


@dataclass(frozen=True, slots=True)
class Selection:
    """An entry chosen by name, with settings; its meaning is up to the registry."""

    name: str
    settings: Mapping[str, Value] = field(default_factory=dict)

    def to_document(self) -> dict[str, Value]:
        """Return the selection as one flat JSON object."""
        return {"name": self.name, **self.settings}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], default: str) -> Selection:
        """Read what `to_document` wrote; without a name it is the default entry."""
        settings = dict(document)
        name = settings.pop("name", default)
        for key, value in {"name": name, **settings}.items():
            if not isinstance(value, bool | int | float | str):
                raise InvalidInput(field=key, value=value, allowed="a number, text, true or false")
        return cls(str(name), settings)


class Registry(Mapping[str, type[T]], Generic[T]):
    """The entries of one kind by name; a lookup raises InvalidInput for an entry that clashes or is incomplete."""

    def __init__(self, field: str, group: str, base: str, entries: Mapping[str, str]) -> None:
        """Declare a registry.

        Args:
            field: the setting that selects an entry, as error messages name it, such as `server_rule`.
            group: the entry points' group, such as `moonfed.server_rules`.
            base: the class that all entries derive from, as `module:Class`.
            entries: moonfed's own, name to `module:Class`.
        """
        self.field, self.group = field, group
        self._base = base
        self._entries = entries
        self._classes: dict[str, type[T]] = {}
        self._installed: tuple[EntryPoint, ...] | None = None

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._entries, *sorted(entry.name for entry in self._entry_points)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in list(iter(self))

    def __getitem__(self, name: str) -> type[T]:
        self._require_distinct()
        if name not in self._classes:
            self._classes[name] = self._load(name)
        return self._classes[name]

    def select(self, name: str) -> type[T]:
        """Return an entry; if the name is unknown, InvalidInput lists the known ones."""
        if name not in self:
            raise InvalidInput(field=self.field, value=name, allowed=f"one of {', '.join(self)}")
        return self[name]

    def build(self, selection: Selection) -> T:
        """Construct a selected entry; settings may be text, as a command line has them.

        Raises InvalidInput naming an unknown entry, an unknown setting, or a value that is not allowed.
        """
        found, values = self.select(selection.name), dict[str, Value]()
        types = setting_types(found)
        for key, value in selection.settings.items():
            if key not in types:
                known = ", ".join(sorted(types)) or "none"
                raise InvalidInput(
                    f"{self.field} setting {key!r} (= {value!r}) is unknown; {selection.name} has {known}"
                )
            values[key] = read_value(key, value, types[key])
        return found(**values)

    def check(self) -> None:
        """Import and check every entry, so that a broken package is reported when a program starts."""
        for name in self:
            _ = self[name]

    @property
    def _entry_points(self) -> tuple[EntryPoint, ...]:
        if self._installed is None:
            self._installed = find_entry_points(self.group)
        return self._installed

    def _require_distinct(self) -> None:
        origins = dict.fromkeys(self._entries, OURSELVES)
        for entry in self._entry_points:
            if entry.name in origins:
                raise InvalidInput(
                    f"{self.field} {entry.name!r} of {_origin(entry)} has the same name as that of "
                    f"{origins[entry.name]}; rename it in its package, or uninstall the package",
                    field=self.field,
                    value=entry.name,
                )
            origins[entry.name] = _origin(entry)

    def _load(self, name: str) -> type[T]:
        entry = next((entry for entry in self._entry_points if entry.name == name), None)
        if name in self._entries:
            origin = OURSELVES
            location = self._entries[name]
            loaded = self._load_own(name)
        elif entry is not None:
            origin = _origin(entry)
            location = entry.value
            loaded = self._load_installed(name, entry)
        else:
            raise KeyError(name)
        if problem := find_problem(name, loaded, _import(self._base)):
            raise InvalidInput(f"{self.field} {name!r} of {origin} is incomplete: {location} {problem}")
        complete: type[T] = loaded
        return complete

    def _load_own(self, name: str) -> Any:  # noqa: ANN401 - whatever is there
        location = self._entries[name]
        module, _, found = location.partition(":")
        rejection = f"{self.field} {name!r} of {OURSELVES} cannot be imported from {location}"
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:  # a library that is not installed: the program says which extra has it
                raise
            raise InvalidInput(f"{rejection}: there is no such module") from error
        if not hasattr(imported, found):
            raise InvalidInput(f"{rejection}: the module has no {found}")
        return getattr(imported, found)

    def _load_installed(self, name: str, entry: EntryPoint) -> Any:  # noqa: ANN401 - whatever is there
        try:
            return entry.load()
        except Exception as error:
            raise InvalidInput(
                f"{self.field} {name!r} of {_origin(entry)} cannot be imported from {entry.value}: "
                f"{type(error).__name__}: {error}"
            ) from error


def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of all installed packages."""
    from importlib.metadata import entry_points  # a megabyte, which a device's light process can do without

    return tuple(entry_points(group=group))


def find_problem(name: str, entry: object, base: type[Any]) -> str:
    """Return the reason why an object cannot be that entry, as text that follows its name; empty if it can."""
    if not NAME.fullmatch(name):
        return "must be registered under lower-case letters, digits, - and _"
    if not (isinstance(entry, type) and issubclass(entry, base)):
        return f"must be a class derived from {base.__module__}.{base.__qualname__}"
    if inspect.isabstract(entry):
        return f"lacks {', '.join(sorted(getattr(entry, '__abstractmethods__', ())))}"
    parameters = entry.__dict__.get("__dataclass_params__")
    if not (is_dataclass(entry) and parameters and parameters.frozen):
        return "must be decorated with @dataclass(frozen=True, slots=True, kw_only=True)"
    if "name" in getattr(base, "__annotations__", {}) and getattr(entry, "name", None) != name:
        return f"has the name {getattr(entry, 'name', None)!r}; it must be the entry's, {name!r}"
    return _find_invalid_setting(entry, base)


def _find_invalid_setting(entry: type[Any], base: type[Any]) -> str:
    declared = {key for parent in entry.__mro__ for key in inspect.get_annotations(parent)}
    for key, value in vars(entry).items():
        constant = key.startswith("_") or hasattr(base, key)  # such as a property of the base
        if isinstance(value, bool | int | float | str) and not constant and key not in declared:
            return f"has {key} = {value!r} without a type; declare a setting as `{key}: {type(value).__name__} = …`"
    try:
        types = setting_types(entry)
    except NameError as error:  # imported for type checkers only
        return f"has a setting whose type is unknown when the program runs: {error}"
    for item in fields(entry):
        if item.default is MISSING and item.default_factory is MISSING:
            return f"has the setting {item.name} without a default"
        if types[item.name] not in SETTING_TYPES and get_origin(types[item.name]) is not Literal:
            return f"has the setting {item.name} of a type other than bool, int, float, str or Literal"
    return ""


def selection_of(entry: Any) -> Selection:  # noqa: ANN401 - a dataclass with a name
    """Return the selection that builds this entry."""
    return Selection(entry.name, asdict(entry))


def setting_types(entry: type[Any]) -> dict[str, Any]:
    """Return an entry's settings with their types."""
    hints = get_type_hints(entry)
    return {item.name: hints[item.name] for item in fields(entry)}


def read_value(key: str, value: object, kind: Any) -> Value:  # noqa: ANN401 - a type or a Literal
    """Return a setting's value as its field's type; InvalidInput if it cannot be converted."""
    if kind is bool:
        truths = {"true": True, "false": False}
        if str(value).lower() in truths:
            return truths[str(value).lower()]
        raise InvalidInput(field=key, value=value, allowed="true or false")
    if get_origin(kind) is Literal:
        if str(value) in get_args(kind):
            return str(value)
        raise InvalidInput(field=key, value=value, allowed=" or ".join(map(repr, get_args(kind))))
    if kind is str:
        return str(value)
    return _read_number(key, value, whole=kind is int)


def _read_number(key: str, value: object, *, whole: bool) -> int | float:
    if whole and isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            return int(value)  # exact, as a float above 2**53 is not
    number = None if isinstance(value, bool) else _as_float(value)
    if number is None or (whole and not number.is_integer()):
        raise InvalidInput(field=key, value=value, allowed=f"a {'whole number' if whole else 'number'}")
    return int(number) if whole else number


def _as_float(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type] # what does not convert is rejected
    except (TypeError, ValueError, OverflowError):
        return None


def read_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Read `KEY=VALUE`, as often as a command line has the option."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidInput(field=option, value=text, allowed="KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def _import(location: str) -> Any:  # noqa: ANN401 - whatever is there
    module, _, name = location.partition(":")
    return getattr(import_module(module), name)


def _origin(entry: EntryPoint) -> str:
    return f"package {entry.dist.name} {entry.dist.version}" if entry.dist else f"entry point {entry.value}"
