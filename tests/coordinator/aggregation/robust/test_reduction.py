"""The reduction of a round, slice by slice: parameters and statistics apart, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.tensors import TensorSpec
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.reducers.median import Median
from moonfed.coordinator.aggregation.robust.reducers.multi_krum import MultiKrum
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.errors import InvalidInput
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.server_rule import Float64Array, Memory
from tests.support.aggregation_rounds import PARAMETERS, Rounds, make_manifest, robust_settings
from tests.support.refusals import refused
from tests.support.robust_rounds import NAMES, ROBUST, START, assert_close, rounds, updates


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_poisoned_statistics_with_honest_parameters_have_no_effect(tmp_path: Path, robust: RunSettings) -> None:
    """If both were measured together, parameters a thousand times as long would hide the statistics."""
    honest = updates(5, 7, spread=0.1)
    honest[:, PARAMETERS] *= 1000
    models = honest.copy()
    models[2, ~PARAMETERS] = -50.0
    played = rounds(tmp_path, robust)
    found = played.next(models, [100] * 7)
    centre = np.delete(honest, 2, axis=0).mean(axis=0)
    assert np.abs((found - centre)[~PARAMETERS]).max() < 0.5
    assert any(told.device == "cam-2" and "statistics" in told.description for told in played.incidents)


def test_a_server_rule_uses_the_reducers_result(tmp_path: Path) -> None:
    models = updates(9, 5)
    played = rounds(tmp_path, robust_settings(reducer="median"), FedAvgM(server_momentum=0.5))
    played.next(models, [1] * 5)
    second = updates(10, 5)
    found = played.next(second, [1] * 5)
    medians = [np.median(models, axis=0), np.median(second, axis=0)]
    first = medians[0]
    moved = first + 0.5 * (first - START) + (medians[1] - first)
    assert_close(found, np.where(PARAMETERS, moved, medians[1]))


@pytest.mark.parametrize("wrong", [0.0, np.zeros(1), np.zeros((1, PARAMETERS.size))], ids=["scalar", "one", "a row"])
def test_a_reducer_that_returns_another_shape_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: object
) -> None:
    """NumPy would broadcast it into the global model."""
    monkeypatch.setattr(Median, "reduce", lambda *_: wrong)
    played = rounds(tmp_path, robust_settings(reducer="median"))
    with refused(InvalidInput, "shape of reducer 'median'"):
        played.next(updates(9, 5), [1] * 5)


@pytest.mark.parametrize("wrong", ["model", "memory"])
def test_a_server_rule_that_returns_another_shape_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    one = np.zeros(1)

    def step(_rule: FedAvgM, _w: object, mean: object, memory: dict[str, object]) -> tuple[object, dict[str, object]]:
        return (one, memory) if wrong == "model" else (mean, dict.fromkeys(memory, one))

    monkeypatch.setattr(FedAvgM, "step", step)
    played = rounds(tmp_path, robust_settings(), FedAvgM())
    with refused(InvalidInput, "shape of server_rule 'fedavgm'", [1]):
        played.next(updates(9, 5), [1] * 5)


@pytest.mark.parametrize("changed", ["w", "mean", "momentum"])
def test_a_server_rule_cannot_change_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """The statistics are the mean's, and the model's shape is that of w."""

    def step(_rule: FedAvgM, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        given = {"w": w, "mean": mean, **memory}
        given[changed] += 1.0
        return mean, memory

    monkeypatch.setattr(FedAvgM, "step", step)
    with pytest.raises(ValueError, match="read-only"):
        rounds(tmp_path, robust_settings(), FedAvgM()).next(updates(9, 5), [1] * 5)


@pytest.mark.parametrize(("reducer", "method"), [(Median, "reduce"), (MultiKrum, "weigh")])
def test_a_reducer_cannot_change_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reducer: type[Reducer], method: str
) -> None:
    """Outliers are found by the distance of the given models from the result."""

    def change(_reducer: Reducer, first: Float64Array, *_: Float64Array) -> None:
        first.sort(axis=0)

    monkeypatch.setattr(reducer, method, change)
    robust = robust_settings(reducer=reducer.name, byzantine=1)
    with pytest.raises(ValueError, match="read-only"):
        rounds(tmp_path, robust).next(updates(9, 5), [1] * 5)


def test_a_reducer_that_weighs_another_number_of_devices_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiKrum, "weigh", lambda *_: (np.ones(4), ()))
    played = rounds(tmp_path, robust_settings(reducer="multi_krum", byzantine=1))
    with refused(InvalidInput, "shape of reducer 'multi_krum'", [4]):
        played.next(updates(9, 5), [1] * 5)


@pytest.mark.parametrize(
    "robust", [robust_settings(), robust_settings(clip_factor=1.0), *ROBUST], ids=["mean", "clip", *NAMES]
)
def test_memory_does_not_grow_with_the_fleet(tmp_path: Path, robust: RunSettings) -> None:
    size, slice_elements = 200_000, 1 << 15
    specs = (TensorSpec("a", (size,), "parameter"), TensorSpec("b", (100,), "statistic"))
    chance, peaks = np.random.default_rng(0), []
    for devices in (10, 40):
        models = chance.normal(size=(devices, size + 100)).astype(np.float32)
        peaks.append(peak_of_a_round(tmp_path / str(devices), specs, models, robust, slice_elements))
    assert peaks[1] < 1.25 * peaks[0]
    assert max(peaks) < 6 * 8 * slice_elements + 200_000, "a few slices in float64, not one model of a device"


def peak_of_a_round(
    directory: Path,
    specs: tuple[TensorSpec, ...],
    models: npt.NDArray[np.float32],
    robust: RunSettings,
    elements: int,
) -> int:
    manifest = make_manifest(tensors=specs)
    played = Rounds(directory, manifest, models[0], slice_elements=elements, robust=robust)
    closed = played.closed(models, [1] * len(models))
    tracemalloc.start()
    try:
        played.close(closed)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
