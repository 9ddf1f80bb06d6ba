"""Graph plans against TorchScript: the time of a step and of loading, on a CPU.

Both plans come from one network. Steps alternate in blocks, and each figure is the median of the blocks' ratios, of
processor time. Loading includes inspection.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.report import Figure, Tables, progress
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.graph.build import graph_plan
from moonfed.export.graph.rounds import Arguments
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors, tensor_specs
from moonfed.export.optimiser import Sgd
from moonfed.export.plan_builder import build_plan, compile_plan, save_plan
from moonfed.plan.interface import Plan, load_plan

SAMPLE, CLASSES = InputSpec(kind="image", shape=(32, 32, 3)), 10
CASES = (("cnn", 64, 40), ("resnet18", 32, 2))  # model, samples in a batch, steps in a block
BLOCKS = 15
LOADS = 5


def measure_plan_formats() -> Tables:
    """Yield a table for each model."""
    for model, batch, steps in CASES:
        yield list(_figures(model, batch, steps))


def _figures(model: str, batch: int, steps: int) -> Iterator[Figure]:
    for method in ("fedavg", "moon"):
        progress(f"{model}, {method}")
        with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
            _write(Path(directory), model, method)
            for threads in (1, 2):
                ratio = _step_ratio(Path(directory), model, method, batch, steps, threads)
                name = f"{model}, {method}, batches of {batch}, {threads} thread{'s' if threads > 1 else ''}"
                yield Figure(name=f"{name}: step, graph / TorchScript", value=ratio, unit="", at_most=1.05)
            graph, script = _load_seconds(Path(directory))
            yield Figure(name=f"{model}, {method}: load, TorchScript", value=script, unit="s")
            yield Figure(name=f"{model}, {method}: load, graph", value=graph, unit="s")
            yield Figure(
                name=f"{model}, {method}: load, graph / TorchScript", value=graph / script, unit="", at_most=1.0
            )


def _write(directory: Path, model: str, method: str) -> None:
    network, chosen = build_network(model, SAMPLE, class_target(CLASSES)), METHODS[method]()
    settings = {**Sgd().hyperparameters(), **chosen.hyperparameters()}
    save_plan(directory / PLAN_FILE, compile_plan(network, chosen, settings, model=model))
    arguments = Arguments(
        model=tensor_specs(network),
        roles={},
        hyperparameters=settings,
        sample=(SAMPLE.shape, torch.uint8),
        target=((), torch.int64),
    )
    (directory / GRAPH_PLAN_FILE).write_bytes(graph_plan(build_plan(network, chosen, settings), arguments))


def _begun(path: Path, model: str, method: str) -> Plan:
    tensors = [
        tensor.detach() for tensor in exchanged_tensors(build_network(model, SAMPLE, class_target(CLASSES))).values()
    ]
    chosen, plan = METHODS[method](), load_plan(path, "cpu")
    settings = {**Sgd().hyperparameters(), **chosen.hyperparameters()}
    plan.begin_round(tensors, [tensors] * chosen.previous_models, {}, settings, 1)
    return plan


def _step_ratio(directory: Path, model: str, method: str, batch: int, steps: int, threads: int) -> float:
    torch.set_num_threads(threads)
    plans = [_begun(directory / file, model, method) for file in (GRAPH_PLAN_FILE, PLAN_FILE)]
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (batch, *SAMPLE.shape), generator=draw, dtype=torch.uint8)
    targets, nothing = torch.arange(batch) % CLASSES, torch.empty(batch, 0)

    def block(plan: Plan) -> float:
        start = time.process_time()
        for _ in range(steps):
            plan.step(inputs, targets, torch.empty(0), nothing)
        return time.process_time() - start

    for plan in plans:
        block(plan)
    ratios = []
    for turn in range(BLOCKS):
        order = plans if turn % 2 else plans[::-1]
        seconds = {id(plan): block(plan) for plan in order}
        ratios.append(seconds[id(plans[0])] / seconds[id(plans[1])])
    return statistics.median(ratios)


def _load_seconds(directory: Path) -> tuple[float, float]:
    found: dict[str, list[float]] = {GRAPH_PLAN_FILE: [], PLAN_FILE: []}
    for _ in range(LOADS):
        for file, seconds in found.items():
            start = time.process_time()
            load_plan(directory / file, "cpu")
            seconds.append(time.process_time() - start)
    return statistics.median(found[GRAPH_PLAN_FILE]), statistics.median(found[PLAN_FILE])
