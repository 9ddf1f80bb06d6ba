"""The benchmarks at their smallest: every figure is present, and the report distinguishes measured from unmeasured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import comparison, contenders, cuda, footprint
from benchmarks.contenders import PLAN_FEDAVG, Workload
from benchmarks.cuda import measure_cuda
from benchmarks.device import CpuScale, measure_cpu
from benchmarks.footprint import measure_footprint
from benchmarks.peak_memory import peak_megabytes
from benchmarks.report import Figure, Tables, print_missed, print_table, record, write_report
from moonfed.export.methods.method import Method
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.plan_builder import compile_plan
from tests.support.forked_process import AnyPopen
from tests.support.forked_programs import ForkedPopen

pytestmark = pytest.mark.slow

TINY = "tests.support.residual_network:tiny"
CUDA_TARGETS = ["at least 8", "at least 2.5", "at most 1.55", "at most 1.55", "at most 5"]


def flat(tables: Tables) -> list[Figure]:
    return [figure for table in tables for figure in table]


def report(figures: list[Figure], directory: Path) -> dict[str, dict[str, Any]]:
    write_report(directory / "bench" / "device.json", figures)
    document = json.loads((directory / "bench" / "device.json").read_text())
    assert {"processor", "cores", "threads", "torch", "cuda_device"} <= set(document["hardware"])
    return {row["name"]: row for row in document["figures"]}


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure(name="a", unit="s", value=2.0, at_most=2.0), True),
        (Figure(name="a", unit="s", value=2.1, at_most=2.0), False),
        (Figure(name="a", unit="s", value=2.0, at_least=2.0), True),
        (Figure(name="a", unit="s", value=1.9, at_least=2.0), False),
        (Figure(name="a", unit="s", value=1.9), None),
        (Figure(name="a", unit="s", at_most=2.0, reason="no clock"), None),
    ],
)
def test_a_target_is_met_missed_or_neither(figure: Figure, met: bool | None) -> None:
    assert figure.met is met


def test_an_unmeasured_figure_is_null_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [
        Figure(name="quick", unit="times", at_most=1.5, reason="no CUDA device"),
        Figure(name="slow", unit="s", value=3.0, at_most=2.0),
    ]
    rows = report(figures, tmp_path)
    assert rows["quick"] == {
        "name": "quick", "value": None, "unit": "times", "target": "at most 1.5", "met": None,
        "reason": "unmeasured: no CUDA device",
    }  # fmt: skip
    assert rows["slow"] == {"name": "slow", "value": 3.0, "unit": "s", "target": "at most 2", "met": False}
    print_table(figures)
    print_missed(figures)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("unmeasured: no CUDA device")
    assert lines[1].endswith("NOT MET")
    assert lines[2] == "not met: slow is 3 s; its target is at most 2"


def test_each_table_is_printed_and_saved_as_soon_as_it_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench" / "device.json"

    def saved() -> tuple[list[str], bool]:
        document = json.loads(path.read_text())
        return [row["name"] for row in document["figures"]], document["complete"]

    def tables() -> Tables:
        yield [Figure(name="first", unit="s", value=3.0, at_most=2.0)]
        assert capsys.readouterr().out.startswith("first ")
        assert saved() == (["first"], False)
        yield [Figure(name="second", unit="s", value=1.0)]
        assert capsys.readouterr().out.startswith("second ")

    record(tables(), path)
    assert saved() == (["first", "second"], True)
    assert capsys.readouterr().out == "not met: first is 3 s; its target is at most 2\n"


def test_the_cpu_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        comparison, "peak_megabytes", lambda side, work: 12.5
    )  # would start a process each; tested below
    torch.set_num_threads(threads := 2)
    smallest = CpuScale(model="cnn", samples=64, turns=1, gain=1.75)
    try:
        rows = report(flat(measure_cpu(smallest, (), epochs=1, views=(1, 3))), tmp_path)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)
    targets = {name: row["target"] for name, row in rows.items() if row["target"]}
    assert targets == {
        "CNN: plan MOON / plan FedAvg": "at most 1.1",
        "CNN: eager MOON / plan MOON": "at least 1.75",
        "CNN: plan FedAvg / eager FedAvg": "at most 1.03",
        "CNN: plan MOON, V = 1 / plan FedAvg, fresh": "at most 1.12",  # 1.05 (3 + 0.2) / 3
        "CNN: plan MOON, V = 3 / plan FedAvg, fresh": "at most 1.26",  # 1.05 (3 + 0.6) / 3
        "CNN, one thread: plan MOON / plan FedAvg": "at most 1.1",
    }
    assert {row["unit"] for row in rows.values()} == {"ms", "MB", "times"}
    assert all(row["value"] > 0 and row["met"] in (True, False, None) for row in rows.values())
    timed = [name for name, row in rows.items() if row["unit"] == "ms"]
    assert len([name for name in timed if f"{name}, peak memory" in rows]) == 7


def test_peak_memory_grows_with_the_data() -> None:
    """The difference is that of 9,936 images of 3,072 bytes, plus little overhead."""
    few, many = (
        peak_megabytes(PLAN_FEDAVG, Workload(model="cnn", accelerator="cpu", samples=samples))
        for samples in (64, 10_000)
    )
    assert 0.8 * 30.5 < many - few < 3 * 30.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="the CUDA benchmark takes minutes")
def test_without_cuda_its_figures_are_unmeasured(tmp_path: Path) -> None:
    rows = report(flat(measure_cuda()), tmp_path)
    assert len(rows) == 5
    assert all((row["value"], row["met"], row["reason"]) == (None, None, "unmeasured: no CUDA device")
               for row in rows.values())  # fmt: skip
    assert [row["target"] for row in rows.values()] == CUDA_TARGETS


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "PARTY_SAMPLES", 64)
    monkeypatch.setattr(cuda, "EPOCHS", 1)
    for name, model in (("CNN", "cnn"), ("RESNET18", "resnet18"), ("RESNET50", "resnet50")):
        monkeypatch.setattr(cuda, name, cuda.CudaScale(model=model, samples=64, turns=1))


def check_cuda_figures(rows: dict[str, dict[str, Any]]) -> None:
    assert [row["target"] for row in rows.values() if row["target"]] == CUDA_TARGETS
    assert all(row["value"] > 0 for row in rows.values())
    assert (
        len([row for row in rows.values() if row["unit"] == "ms"]) == 3 * 8 + 4
    )  # contenders; with fresh augmentation
    assert len([row for row in rows.values() if row["unit"] == "MB"]) == 3 * 8


def compile_once() -> Callable[..., torch.jit.ScriptModule]:
    """Return a `compile_plan` for contenders that all have the same network."""
    plans: dict[tuple[type, type], torch.jit.ScriptModule] = {}

    def compiled(network: Network, method: Method, names: Iterable[str], **more: Any) -> torch.jit.ScriptModule:
        key = type(method), type(more["augmentation"])
        if key not in plans:
            plans[key] = compile_plan(network, method, names, **more)
        return plans[key]

    return compiled


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_cuda_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    check_cuda_figures(report(flat(measure_cuda()), tmp_path))


def test_the_cuda_code_path_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exercise the CUDA benchmark's code on machines without CUDA: the same contenders with a small network."""
    make_small(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "ACCELERATOR", "cpu")
    monkeypatch.setattr(contenders, "build_network", lambda model, *rest, **more: build_network(TINY, *rest, **more))
    monkeypatch.setattr(contenders, "compile_plan", compile_once())
    monkeypatch.setattr(comparison, "peak_megabytes", lambda side, work: 12.5)
    figures = flat(measure_cuda())
    monkeypatch.undo()
    check_cuda_figures(report(figures, tmp_path))


class FreshDevice(ForkedPopen):
    """A process that is forked unless it is the device, whose memory is measured."""

    def _execute_child(self, args: Any, *details: Any) -> None:
        is_device = [Path(args[0]).name, args[1]] == ["moonfed-client", "run"]
        (AnyPopen if is_device else ForkedPopen)._execute_child(self, args, *details)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("forked_programs")
def test_the_footprint_of_a_real_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", FreshDevice)
    monkeypatch.setattr(footprint, "SETTLE", 0.5)
    rows = report(flat(measure_footprint(starts=1)), tmp_path)
    assert [row["target"] for row in rows.values()] == ["at most 60", "at most 30", "at most 2"]
    parent, child, start = (row["value"] for row in rows.values())
    assert 20 < parent < 200  # a Python with gRPC, without torch
    assert 0 < child < 200
    assert 0.1 < start < footprint.TIMEOUT


def test_without_the_coordinators_dependencies_the_footprint_is_unmeasured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "NEEDED", ("a_module_that_nobody_has",))
    rows = report(flat(measure_footprint()), tmp_path)
    assert len(rows) == 3
    assert {row["reason"] for row in rows.values()} == {"unmeasured: a_module_that_nobody_has is not installed"}
