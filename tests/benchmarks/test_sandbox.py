"""The benchmark of the sandbox, with one round and one start."""

from __future__ import annotations

import pytest

from benchmarks.sandbox import ROUND, START, measure_sandbox
from moonfed.sandbox.policy import available_level
from tests.support.compiled import device_bundle

pytestmark = pytest.mark.slow


@pytest.mark.skipif(available_level() != "strict", reason="needs Landlock and seccomp")
def test_both_figures_are_measured_with_what_they_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sandbox.build_bundle", device_bundle)
    figures = [figure for table in measure_sandbox(pairs=1, rounds=1, starts=1, epochs=1) for figure in table]
    names = [figure.name for figure in figures]
    assert names[2] == ROUND.name
    assert names[5] == START.name
    assert all(figure.value is not None for figure in figures)


def test_a_kernel_without_landlock_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sandbox.available_level", lambda: "weak")
    (table,) = measure_sandbox()
    assert [figure.reason for figure in table] == ["this kernel has no Landlock"] * 2
