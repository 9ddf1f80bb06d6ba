"""Kinds of settings: how text or a number is read, checked, and written as JSON and for people."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from moonfed.errors import InvalidInput
from moonfed.formatting import number_text, percent_text, read_percent
from moonfed.labels import check_labels, parse_labels, write_labels
from moonfed.registry import Value, read_pairs, read_value
from moonfed.validate import require_whole

T = TypeVar("T")
MAX_NUMBER = 1_000_000  # of rounds or devices
MAX_WORD = 200  # characters


def read_table(name: str, value: object) -> dict[str, Value]:
    """Return a table of a recipe; InvalidInput unless it is one, of numbers and text."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} is {value!r}; it must be a table, [{name}]")
    for key, item in value.items():
        if not isinstance(item, bool | int | float | str):
            raise InvalidInput(f"{name}.{key} is {item!r}; it must be a number or text")
    return dict(value)


class Kind(ABC, Generic[T]):
    """Values of one kind. `option`: the type of its options on a command line."""

    option: ClassVar[Any] = str

    @abstractmethod
    def read(self, name: str, value: object) -> T:
        """Return what an operator wrote, or a document has, as a value; InvalidInput names the setting."""

    @abstractmethod
    def check(self, name: str, value: T) -> None:
        """Raise InvalidInput for a value that is not allowed."""

    def write(self, value: T) -> Any:  # noqa: ANN401 - JSON
        """Return a value as JSON."""
        return value

    def text(self, value: T) -> str:
        """Return a value as people read it; empty if the setting's name says it all."""
        return str(self.write(value))


@dataclass(frozen=True, slots=True)
class Whole(Kind[int]):
    """Whole numbers from `least` to `most`."""

    least: int
    most: int = MAX_NUMBER

    option: ClassVar[Any] = int

    def read(self, name: str, value: object) -> int:
        return int(read_value(name, value, int))

    def check(self, name: str, value: int) -> None:
        require_whole(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Number(Kind[float]):
    """Finite numbers that are `valid`; `allowed` completes "it must be". `unit`: for people."""

    allowed: str
    valid: Callable[[float], bool]
    unit: str = ""

    option: ClassVar[Any] = float

    def read(self, name: str, value: object) -> float:
        return float(read_value(name, value, float))

    def check(self, name: str, value: float) -> None:
        if not (math.isfinite(value) and self.valid(value)):
            raise InvalidInput(f"{name} is {value}; it must be {self.allowed}")

    def text(self, value: float) -> str:
        return number_text(value) + self.unit


@dataclass(frozen=True, slots=True)
class Share(Kind[float]):
    """Fractions of `whole`, such as 30% or 0.3, from 0 to `most`."""

    whole: str
    most: float

    def read(self, name: str, value: object) -> float:
        number = _word(name, value, "like 30% or 0.3")
        try:
            fraction = read_percent(number) if number.endswith("%") else float(number)
        except ValueError as error:
            raise InvalidInput(f"{name} is {number!r}; it must be like 30% or 0.3") from error
        if not number.endswith("%") and fraction > 1:
            raise InvalidInput(f"{name} is {number!r}, a share without a percent sign; it must be like 30% or 0.3")
        return fraction

    def check(self, name: str, value: float) -> None:
        if not 0 <= value <= self.most:
            raise InvalidInput(f"{name} is {value}; it must be from 0 to {self.most:g} times {self.whole}")

    def write(self, value: float) -> str:
        return percent_text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A share of a set of devices: a fixed number, or a fraction of the set rounded up."""

    count: int | None = None
    fraction: float | None = None

    def of(self, total: int) -> int:
        """Return the number of devices for a set of `total`; a count may exceed it."""
        if self.fraction is None:
            return self.count or 0
        return max(1, math.ceil(round(self.fraction * total, 9)))  # 0.1 of 30 is 3, despite binary rounding

    def __str__(self) -> str:
        if self.fraction is None:
            return str(self.count)
        return "all" if self.fraction == 1 else percent_text(self.fraction)


class Amounts(Kind[Amount]):
    """Amounts, such as 10, 20% or all."""

    def read(self, name: str, value: object) -> Amount:
        given = _word(name, value, "like 10, 20% or all")
        number = "100%" if given == "all" else given
        try:
            return Amount(fraction=read_percent(number)) if number.endswith("%") else Amount(count=int(number))
        except ValueError as error:
            raise InvalidInput(f"{name} is {given!r}; it must be like 10, 20% or all") from error

    def check(self, name: str, value: Amount) -> None:
        if (value.count is None) == (value.fraction is None):
            raise InvalidInput(f"{name} is {value!r}; it must be either a count or a fraction")
        if value.count is not None:
            require_whole(name, value.count, 1, MAX_NUMBER)
        if value.fraction is not None and not 0 < value.fraction <= 1:
            raise InvalidInput(f"{name} is {value.fraction}; a fraction must be above 0 and at most 1")

    def write(self, value: Amount) -> str:
        return str(value)


class Choice(Kind[str]):
    """One of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def read(self, name: str, value: object) -> str:
        return _word(name, value, self._allowed)

    def check(self, name: str, value: str) -> None:
        if value not in self.choices:
            raise InvalidInput(f"{name} is {value!r}; it must be {self._allowed}")

    @property
    def _allowed(self) -> str:
        return " or ".join(map(repr, self.choices))


class Words(Kind[str]):
    """Names whose meaning is checked where they are used."""

    def read(self, name: str, value: object) -> str:
        return _word(name, value, _LINE)

    def check(self, name: str, value: str) -> None:
        _require_line(name, value)


class Flag(Kind[bool]):
    """True or false."""

    option: ClassVar[Any] = bool

    def read(self, name: str, value: object) -> bool:
        return bool(read_value(name, value, bool))

    def check(self, name: str, value: bool) -> None:
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} is {value!r}; it must be true or false")

    def text(self, value: bool) -> str:
        return "" if value else "no"


class Labels(Kind[Mapping[str, str]]):
    """Labels of devices."""

    option: ClassVar[Any] = list[str]

    def read(self, name: str, value: object) -> Mapping[str, str]:
        if isinstance(value, list | tuple):
            return parse_labels(value)
        return {key: str(item) for key, item in read_table(name, value).items()}

    def check(self, name: str, value: Mapping[str, str]) -> None:
        check_labels(value)

    def write(self, value: Mapping[str, str]) -> dict[str, str]:
        return dict(value)

    def text(self, value: Mapping[str, str]) -> str:
        return write_labels(value)


class Pairs(Kind[Mapping[str, Value]]):
    """Settings of a part that is chosen by name, which checks them; text that is a number becomes one."""

    option: ClassVar[Any] = list[str]

    def read(self, name: str, value: object) -> Mapping[str, Value]:
        pairs = read_pairs(name, value) if isinstance(value, list | tuple) else read_table(name, value)
        return {key: _number(item) for key, item in pairs.items()}

    def check(self, name: str, value: Mapping[str, Value]) -> None:
        for key, item in value.items():
            _require_line(name, key)
            if isinstance(item, float) and not math.isfinite(item):
                raise InvalidInput(f"{name}.{key} is {item}; it must be a finite number")
            if isinstance(item, str):
                _require_line(f"{name}.{key}", item)

    def write(self, value: Mapping[str, Value]) -> dict[str, Value]:
        return dict(value)

    def text(self, value: Mapping[str, Value]) -> str:
        return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))


class Numbers(Pairs):
    """Finite numbers by name."""

    def check(self, name: str, value: Mapping[str, Value]) -> None:
        super().check(name, value)
        for key, item in value.items():
            if isinstance(item, str | bool):
                raise InvalidInput(field=f"{name}.{key}", value=item, allowed="a number")


class Budget(Numbers):
    """Numbers above 0 of a privacy budget, by `names`; on a command line in one text, such as epsilon=2,delta=1e-5."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def read(self, name: str, value: object) -> Mapping[str, Value]:
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list | tuple):
            texts = [part for text in texts for part in str(text).split(",") if part.strip()]
        return super().read(name, texts)

    def check(self, name: str, value: Mapping[str, Value]) -> None:
        super().check(name, value)
        for key, item in value.items():
            if key not in self.names:
                raise InvalidInput(field=f"{name}.{key}", value=item, rest=f"; the keys are {', '.join(self.names)}")
            if not float(item) > 0:
                raise InvalidInput(field=f"{name}.{key}", value=item, allowed="above 0")


_LINE = f"1 to {MAX_WORD} printable characters"


def _require_line(name: str, value: str) -> None:
    if not (0 < len(value) <= MAX_WORD and value.isprintable()):
        raise InvalidInput(f"{name} is {value[:MAX_WORD]!r}; it must be {_LINE}")


def _word(name: str, value: object, allowed: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInput(f"{name} is {value!r}; it must be {allowed}")
    return str(value).strip()


def _number(value: Value) -> Value:
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            number = kind(value)
            if isinstance(value, str) and math.isfinite(number):
                return number
    return value
