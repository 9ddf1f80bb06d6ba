"""Registries: valid and invalid entries of installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from moonfed import registry
from moonfed.errors import InvalidInput
from moonfed.registry import Registry, Selection, read_value
from moonfed.server_rules.adaptive import AdaptiveRule
from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule

OWN = {"mean": "moonfed.server_rules.mean:MeanRule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Half(ServerRule):
    name: ClassVar[str] = "half"
    share: float = 0.5
    rounds: int = 3

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        return w + self.share * (mean - w), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepless(ServerRule):
    name: ClassVar[str] = "stepless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentless(AdaptiveRule):
    """An adaptive rule that does not define its second moment."""

    name: ClassVar[str] = "momentless"


class Undecorated(Half):
    name: ClassVar[str] = "undecorated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Untyped(Half):
    name: ClassVar[str] = "untyped"
    decay = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Required(Half):
    name: ClassVar[str] = "required"
    decay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Half):
    name: ClassVar[str] = "listed"
    decays: tuple[float, ...] = (0.9,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undefined(Half):
    name: ClassVar[str] = "undefined"
    decay: EntryPoint | Unimported = 0.9  # type: ignore[name-defined]  # noqa: F821


def rules(monkeypatch: pytest.MonkeyPatch, **entries: str) -> Registry[ServerRule]:
    points = [EntryPoint(name, f"{__name__}:{found}", "moonfed.server_rules") for name, found in entries.items()]
    monkeypatch.setattr(registry, "find_entry_points", lambda group: tuple(points))
    base = "moonfed.server_rules.server_rule:ServerRule"
    return Registry("server_rule", "moonfed.server_rules", base, OWN)


def test_an_entry_point_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rules(monkeypatch, half="Half")
    assert list(found) == ["mean", "half"]
    assert found.build(Selection("half", {"share": "0.25", "rounds": 4.0})) == Half(share=0.25, rounds=4)
    found.check()


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("mean", "Half", "server_rule 'mean' of entry point .* has the same name as that of moonfed itself"),
        ("stepless", "Stepless", "server_rule 'stepless' of .* is incomplete: .* lacks step"),
        ("momentless", "Momentless", "lacks second_moment"),
        ("undecorated", "Undecorated", "must be decorated with @dataclass"),
        ("untyped", "Untyped", "has decay = 0.9 without a type; declare a setting as `decay: float = …`"),
        ("required", "Required", "has the setting decay without a default"),
        ("listed", "Listed", "has the setting decays of a type other than bool, int, float, str or Literal"),
        ("undefined", "Undefined", "has a setting whose type is unknown when the program runs: name 'Unimported'"),
        ("quarter", "Half", "has the name 'half'; it must be the entry's, 'quarter'"),
        ("ANY", "Half", "must be registered under lower-case letters"),
        ("rules", "rules", "must be a class derived from moonfed.server_rules.server_rule.ServerRule"),
        ("gone", "Gone", "server_rule 'gone' of .* cannot be imported from .*Gone: AttributeError"),
    ],
)
def test_an_entry_that_clashes_or_is_incomplete_is_rejected(
    name: str, entry: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=message):
        rules(monkeypatch, **{name: entry}).check()


@pytest.mark.parametrize(
    ("name", "location", "message"),
    [
        ("stepless", f"{__name__}:Stepless", "'stepless' of moonfed itself is incomplete: .*:Stepless lacks step"),
        ("momentless", f"{__name__}:Momentless", "lacks second_moment"),
        ("undecorated", f"{__name__}:Undecorated", "must be decorated with @dataclass"),
        ("quarter", f"{__name__}:Half", "has the name 'half'; it must be the entry's, 'quarter'"),
        (
            "gone",
            f"{__name__}:Gone",
            "'gone' of moonfed itself cannot be imported from .*: the module has no Gone",
        ),
        ("lost", f"{__name__}_lost:Lost", "'lost' of moonfed itself cannot be imported from .*: there is no such mod"),
    ],
)
def test_a_line_of_our_own_table_is_checked_likewise(name: str, location: str, message: str) -> None:
    table = {**OWN, name: location}
    own = Registry[ServerRule]("server_rule", "moonfed.tests", "moonfed.server_rules.server_rule:ServerRule", table)
    assert own["mean"].name == "mean"
    with pytest.raises(InvalidInput, match=f"server_rule .*{message}"):
        own.select(name)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection("third"), "server_rule is 'third'"),
        (Selection("half", {"speed": 1}), r"server_rule setting 'speed' \(= 1\) is unknown; half has rounds, share"),
        (Selection("half", {"rounds": 1.5}), "rounds is 1.5"),
        (Selection("half", {"rounds": "nan"}), "rounds is 'nan'"),
        (Selection("half", {"share": True}), "share is True"),
    ],
)
def test_an_invalid_selection_is_rejected(selection: Selection, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=message):
        rules(monkeypatch, half="Half").build(selection)


@pytest.mark.parametrize(
    ("value", "read"), [(2**64 - 1, 2**64 - 1), (str(2**64 - 1), 2**64 - 1), ("3.0", 3), (1e3, 1000)]
)
def test_whole_numbers_are_exact(value: object, read: int) -> None:
    assert read_value("seed", value, int) == read
