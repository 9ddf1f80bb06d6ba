"""Inspection of a plan's objects: each attribute must have the type that the object's class declares.

Torch does not check this. It reads attributes, and the elements of tuples, at their positions in the declared type,
which may be beyond the end of an object of another class. Types that torch checks on every use are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from moonfed.errors import UnsafePlan


class Tensor:
    """A tensor, which was read from a pickle."""


@dataclass(frozen=True, slots=True)
class ScriptObject:
    """An instance of a script class, which was read from a pickle."""

    script_type: str


class DeclaredAttributes:
    """The declarations of a plan's classes."""

    def __init__(self, declared: Mapping[str, Mapping[str, str]]) -> None:
        """Take what the code declares: the types of all attributes, as the code spells them, by class and attribute."""
        self._declared = declared

    def require(self, script_type: str, state: object) -> None:
        """Raise UnsafePlan unless an object's attributes are as its class declares them."""
        if script_type not in self._declared or not isinstance(state, dict):
            raise UnsafePlan(
                f"the plan has an object of {script_type[:100]!a}, which its code does not define",
                field="object",
                value=script_type[:100],
            )
        seen: set[tuple[int, str]] = set()
        declared = self._declared[script_type]
        for name, value in state.items():
            if name not in declared or not _fits(value, declared[name], seen):
                raise UnsafePlan(
                    f"the plan's {script_type[:100]!a} has {str(name)[:100]!a} of another type than its code declares",
                    field="attribute",
                    value=str(name)[:100],
                )


def _fits(value: object, text: str, seen: set[tuple[int, str]]) -> bool:
    """Return whether a value has a type; `seen`: pairs that were already checked, since lists can share lists."""
    if (id(value), text) in seen:
        return True
    seen.add((id(value), text))
    generic, _, rest = text.partition("[")
    inner = list(_split(rest.removesuffix("]")))
    if generic == "Optional":
        return value is None or _fits(value, inner[0], seen)
    if isinstance(value, ScriptObject):
        return value.script_type == text
    if isinstance(value, tuple):
        return generic == "Tuple" and len(value) == len(inner) and all(map(_fits, value, inner, [seen] * len(inner)))
    if isinstance(value, list):
        return generic == "List" and all(_fits(each, inner[0], seen) for each in value)
    if isinstance(value, dict):
        return generic == "Dict" and len(inner) == 2 and all(_fits(each, inner[1], seen) for each in value.values())
    return value is None or isinstance(value, bool | int | float | str | Tensor)


def _split(text: str) -> Iterator[str]:
    """Yield the parts between the outermost commas."""
    depth, begin = 0, 0
    for position, character in enumerate(f"{text},"):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[begin:position].strip()
            begin = position + 1
