"""The check of an operator's arguments: each must have the type that the operator's schema declares.

Torch converts arguments itself, but reads beyond its tables for a number that is no data type, layout or memory format.
So these are names in the container, and objects here. Strings select a variant of an operator, and each is reviewed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from moonfed.plan.graph.container import Argument, Named, Value, fail


class Kind(Enum):
    """The kinds of values; a NUMBER is an integer or a floating-point number, as a tensor's element is."""

    TENSOR = "a tensor"
    INT = "an integer"
    FLOAT = "a floating-point number"
    NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class Constant:
    """An operand that is known before the graph runs."""

    value: object


@dataclass(frozen=True, slots=True)
class PlanDevice:
    """An operand that is the plan's device."""


Operand = Value | Constant | PlanDevice | tuple["Operand", ...]
_MEMORY_FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "preserve": torch.preserve_format,
}
_INT32 = 1 << 31
# Literal integers that must be less, by the argument's name: torch takes them for one of so many choices, or compares
# their lowest 32 bits with the input, but then loops over all 64.
LIMITS: Mapping[str, int] = {
    **dict.fromkeys(("reduction", "interpolation_mode", "padding_mode"), 3),
    **dict.fromkeys(("kernel_size", "stride", "padding", "output_padding", "dilation"), _INT32),
}
STRINGS: Mapping[str, re.Pattern[str]] = {
    "approximate": re.compile("none|tanh"),
    "equation": re.compile(r"[A-Za-z,.> -]{1,200}", re.ASCII),
    "indexing": re.compile("ij|xy"),
    "mode": re.compile("constant|reflect|replicate|circular"),
    "ord": re.compile("fro|nuc"),
    "padding": re.compile("same|valid"),
    "reduce": re.compile("add|multiply"),
    "rounding_mode": re.compile("floor|trunc"),
}
_ENUMERATIONS: Mapping[str, str] = {  # named arguments by the type that a schema declares
    "ScalarType": "dtype",
    "Layout": "layout",
    "MemoryFormat": "memory_format",
    "Device": "device",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator's schema."""

    name: str
    type: str  # without Optional
    optional: bool
    length: int | None  # of the list that one element may stand for
    keyword_only: bool
    required: bool
    written: bool

    @classmethod
    def of(cls, declared: Any) -> Parameter:  # noqa: ANN401 - torch's bindings are untyped
        """Return the parameter of a schema's argument."""
        text = str(declared.real_type)
        optional = text.startswith("Optional[")
        return cls(
            name=declared.name,
            type=text.removeprefix("Optional[").removesuffix("]") if optional else text,
            optional=optional,
            length=declared.N,
            keyword_only=declared.kwarg_only,
            required=not declared.has_default_value(),
            written=declared.alias_info is not None and declared.alias_info.is_write,
        )


class Checker:
    """The check of arguments in one graph; `kinds`: those of the values so far."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def operand(self, given: Argument, parameter: Parameter, where: str) -> Operand:
        """Return what an argument is; UnsafePlan naming it unless it has the parameter's type."""
        if given is None:
            if not parameter.optional:
                fail(where, None, _described(parameter.type))
            return Constant(None)
        if parameter.name in ("dtype", "layout", "memory_format") and "int" in parameter.type:
            fail(where, "an integer", "null, as an integer is not checked by torch")
        if parameter.name == "pin_memory" and given is not False:
            fail(where, given if isinstance(given, bool) else "another value", "false or null")
        if parameter.type == "Tensor" and not (parameter.optional or parameter.written) and self._is_number(given):
            return self._element(given, "number", parameter.name, where)  # torch makes a tensor of it
        if not parameter.type.startswith("List["):
            return self._element(given, parameter.type, parameter.name, where)
        inner = parameter.type.removeprefix("List[").removesuffix("]")
        if isinstance(given, tuple):
            if parameter.length is not None and parameter.length > 1 and len(given) not in (0, 1, parameter.length):
                fail(where, f"{len(given)} elements", f"{parameter.length} elements")
            return self._elements(given, inner, parameter.name, where)
        if parameter.length is None:
            fail(where, _shown(given), "a list")
        return self._element(given, inner, parameter.name, where)

    def value(self, given: Argument, where: str, *kinds: Kind) -> Value:
        """Return an argument that is an earlier value of one of these kinds."""
        if not isinstance(given, Value):
            fail(where, _shown(given), "a value")
        if given.id >= len(self._kinds):
            fail(where, given.id, "the id of an earlier value")
        if self._kinds[given.id] not in kinds:
            fail(where, self._kinds[given.id].value, " or ".join(kind.value for kind in kinds))
        return given

    def kind(self, operand: Operand) -> Kind:
        """Return the kind of an operand that is a number."""
        if isinstance(operand, Value):
            return self._kinds[operand.id]
        return Kind.INT if isinstance(operand, Constant) and type(operand.value) is int else Kind.FLOAT

    def number(self, given: Argument, where: str) -> Operand:
        """Return an argument that is a number, but no truth value."""
        if isinstance(given, Value):
            return self.value(given, where, *_NUMBERS)
        if type(given) not in (int, float):
            fail(where, _shown(given), "a number")
        return Constant(given)

    def _is_number(self, given: Argument) -> bool:
        if isinstance(given, Value):
            return given.id < len(self._kinds) and self._kinds[given.id] is not Kind.TENSOR
        return not isinstance(given, Named | tuple)

    def _elements(self, given: tuple[Argument, ...], inner: str, name: str, where: str) -> Operand:
        if inner.startswith("Optional["):
            inner = inner.removeprefix("Optional[").removesuffix("]")
            return tuple(
                Constant(None) if each is None else self._element(each, inner, name, f"{where}[{at}]")
                for at, each in enumerate(given)
            )
        return tuple(self._element(each, inner, name, f"{where}[{at}]") for at, each in enumerate(given))

    def _element(self, given: Argument, kind: str, name: str, where: str) -> Operand:
        if kind in _ENUMERATIONS:
            return _enumeration(given, _ENUMERATIONS[kind], where)
        if kind == "str":
            return _string(given, name, where)
        if isinstance(given, Value) and kind in _VALUES:
            if name in LIMITS:
                fail(where, "a value", f"a whole number below {LIMITS[name]}")
            return self.value(given, where, *_VALUES[kind])
        accepts = _LITERALS.get(kind)
        if accepts is None or not accepts(given):
            fail(where, _shown(given), _described(kind))
        if name in LIMITS and given not in range(LIMITS[name]):
            fail(where, _shown(given), f"a whole number below {LIMITS[name]}")
        return Constant(given)


_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.NUMBER)
_VALUES: Mapping[str, tuple[Kind, ...]] = {
    "Tensor": (Kind.TENSOR,),
    "int": (Kind.INT,),
    "float": _NUMBERS,
    "number": _NUMBERS,
}
_LITERALS: Mapping[str, Callable[[Argument], bool]] = {  # by type: whether it accepts a literal
    "int": lambda given: type(given) is int,
    "float": lambda given: type(given) in (int, float),
    "number": lambda given: type(given) in (int, float, bool),
    "bool": lambda given: type(given) is bool,
    "Generator": lambda given: False,
}


def _enumeration(given: Argument, kind: str, where: str) -> Operand:
    if not isinstance(given, Named) or given.kind != kind:
        fail(where, _shown(given), f"a {kind} by name")
    if kind == "device":
        return PlanDevice()
    if kind == "memory_format":
        return Constant(_MEMORY_FORMATS[given.name])
    return Constant(getattr(torch, given.name))


def _string(given: Argument, name: str, where: str) -> Operand:
    pattern = STRINGS.get(name)
    if not isinstance(given, Named) or given.kind != "string" or not pattern or not pattern.fullmatch(given.name):
        fail(where, given.name if isinstance(given, Named) else _shown(given), "a string that was reviewed for it")
    return Constant(given.name)


def _described(kind: str) -> str:
    words = {"int": "an integer", "float": "a floating-point number", "number": "a number", "bool": "true or false"}
    return words.get(kind, f"of the type {kind}")


def _shown(given: Argument) -> object:
    if isinstance(given, Value):
        return "a value"
    return f"a {given.kind}" if isinstance(given, Named) else list(given) if isinstance(given, tuple) else given
