"""Metrics of packages: what they get, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

from moonfed.bundle.target import TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.tasks.added_metric import ADDED_METRICS, GROUP, AddedMetric, compute_added, read_added_metrics
from moonfed.tasks.task import Array
from tests.support.added_metrics import MissedError
from tests.support.refusals import refused

TARGET = class_target(("cat", "dog"))
OUTPUTS = [np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), np.array([[0.4, 0.6]], np.float32)]
TARGETS = np.array([0, 1, 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns(AddedMetric):
    """A metric that returns a value, or raises it."""

    name: ClassVar[str] = "returns"
    maximise: ClassVar[bool] = True
    value: ClassVar[Any] = None

    def compute(self, outputs: Array, targets: Array, target: TargetSpec) -> float:
        if isinstance(self.value, Exception):
            raise self.value
        found: float = self.value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Upwards(MissedError):
    name: ClassVar[str] = "upwards_error"
    maximise: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Downwards(MissedError):
    name: ClassVar[str] = "downwards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(MissedError):
    name: ClassVar[str] = "train_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashed(MissedError):
    name: ClassVar[str] = "dashed-error"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kinds = (MissedError, Returns, Upwards, Downwards, Train, Dashed)
    points = tuple(EntryPoint(kind.name, f"{__name__}:{kind.__name__}", GROUP) for kind in kinds)
    monkeypatch.setattr(ADDED_METRICS, "_installed", points)
    yield
    ADDED_METRICS._classes.clear()


@pytest.mark.usefixtures("installed")
def test_a_metric_gets_all_outputs_and_targets_and_cannot_change_them() -> None:
    (missed,) = read_added_metrics(["missed_error", "missed_error"])
    assert compute_added([missed], OUTPUTS, TARGETS, TARGET) == {"missed_error": pytest.approx(1 / 3)}
    assert compute_added([], [], TARGETS, TARGET) == {}

    class Changes(Returns):
        def compute(self, outputs: Array, targets: Array, target: TargetSpec) -> float:
            targets[0] = 1
            return 0.0

    with refused(InvalidInput, "metric", "returns"):
        compute_added([Changes()], OUTPUTS, TARGETS, TARGET)
    assert TARGETS.flags.writeable


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["unknown", "upwards_error", "downwards", "train_error", "dashed-error"])
def test_unknown_and_misleading_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        read_added_metrics([name])


def test_without_packages_no_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ADDED_METRICS, "_installed", ())
    with refused(InvalidInput, "metric", "f1"):
        read_added_metrics(["f1"])


@pytest.mark.parametrize(
    "value", [None, "0.5", True, float("nan"), float("inf"), np.array([0.5]), 1j, ValueError("two\nlines"), KeyError()]
)
def test_a_failure_or_anything_but_a_finite_number_is_refused(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Returns, "value", value)
    with refused(InvalidInput, "metric", "returns") as caught:
        compute_added([Returns()], OUTPUTS, TARGETS, TARGET)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, np.float32(0.5), np.float64(0.5), np.int64(2)])
def test_numbers_of_numpy_are_numbers(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Returns, "value", value)
    found = compute_added([Returns()], OUTPUTS, TARGETS, TARGET)
    assert found == {"returns": float(value)}
    assert type(found["returns"]) is float
