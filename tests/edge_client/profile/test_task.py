"""Measurements in the process of the test; `test_measure` makes them in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest
import torch

from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.edge_client.profile import task
from moonfed.edge_client.profile.task import MAX_CALLS, MIN_CALLS, WARM_UP, MeasureSettings, Times, measure, open_task
from moonfed.errors import SchemaMismatch
from moonfed.sandbox.ipc import ParentPipe
from tests.edge_client.conftest import Bundle

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def settings(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasureSettings:
    monkeypatch.setattr(task, "MAX_CALLS", MIN_CALLS)
    contents = {MANIFEST_FILE: bundle.manifest.to_bytes(), PLAN_FILE: bundle.plan, WEIGHTS_FILE: bundle.weights}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return MeasureSettings(
        directory=str(tmp_path),
        plan=PLAN_FILE,
        accelerator="cpu",
        threads=None,
        precision="float32",
        memory_format=None,
        samples=9,
        batch_size=4,
    )


def test_a_plan_with_references_is_measured_in_each_of_its_parts(settings: MeasureSettings) -> None:
    reported: list[str] = []
    times = measure(settings, reported.append)
    assert reported == [
        "measuring references",
        "measuring steps that compute their references",
        "measuring steps",
        "measuring evaluation",
    ]
    assert all(seconds > 0 for seconds in asdict(times).values())


def test_the_answer_has_times_and_memory(settings: MeasureSettings, tmp_path: Path) -> None:
    sent: list[tuple[str, str]] = []

    class Parent:
        def send(self, kind: str, text: str) -> None:
            sent.append((kind, text))

    execute = open_task(asdict(settings), tmp_path, cast(ParentPipe, Parent()))
    answer = execute("profile", {})
    assert Times(**answer["times"]).step > 0
    assert answer["kind"] == "profiled"
    assert 0 < answer["own"] <= answer["host"]
    assert answer["accelerator"] is None
    assert sent[0] == ("progress", "measuring references")


def test_a_bundle_whose_weights_do_not_fit_is_not_measured(settings: MeasureSettings, tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(b"nothing")
    with pytest.raises(SchemaMismatch):
        measure(settings, lambda _: None)


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (InputSpec(kind="image", shape=(4, 4, 3)), torch.uint8),
        (InputSpec(kind="features", shape=(6,)), torch.float32),
    ],
)
def test_random_samples_have_the_manifests_form_and_are_the_same_each_time(
    spec: InputSpec, dtype: torch.dtype, bundle: Bundle
) -> None:
    manifest = replace(bundle.manifest, input=spec)
    one, other = task._random_samples(manifest, 20), task._random_samples(manifest, 20)
    assert one.inputs.shape == (20, *spec.shape)
    assert one.inputs.dtype == dtype
    assert torch.equal(one.inputs, other.inputs)
    assert set(one.targets.tolist()) <= set(range(len(manifest.classes)))


class Clock:
    """A clock by which each measured call takes the next of some durations, the last one for ever."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds, self.now, self.calls = seconds, 0.0, 0

    def perf_counter(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += next(self._seconds)
        self.calls += 1


@pytest.mark.parametrize(
    ("durations", "median", "counted"),
    [
        ([9.0] * WARM_UP + [0.01] * MAX_CALLS, 0.01, MAX_CALLS),  # warm-up does not count
        ([0.0] * WARM_UP + [1.0, 2.0, 9.0, 4.0, 3.0, 8.0], 3.0, MIN_CALLS),  # slow: as few calls as possible
        ([0.0] * WARM_UP + [0.25] * 50, 0.25, 12),  # until the time limit
    ],
)
def test_the_median_is_over_calls_after_the_warm_up(
    durations: list[float], median: float, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(iter(durations))
    monkeypatch.setattr(task, "time", clock)
    assert task._median_seconds(clock.call, CPU) == pytest.approx(median)
    assert clock.calls == WARM_UP + counted
