"""Writes a run's global model as a checked ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.binding import Origin, bind
from export.parity import BOUND, give_model, require_parity
from export.runs import Runs, global_model
from moonfed.errors import InvalidInput
from moonfed.files import write_durably
from moonfed.manifest import GRAPH_FILE, PLAN_FILE
from moonfed.plan import load_plan
from moonfed.samples import read_inputs
from moonfed.tensors import open_model


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenModel:
    """What was written, and how near its predictions are to the plan's."""

    path: Path
    run: str
    round: int
    model: str  # sha256 of the weights
    max_abs_diff: float  # between two probabilities


def write_onnx(
    runs: Runs, run_name: str, data: Path, output: Path, *, round_number: int | None = None, bound: float = BOUND
) -> WrittenModel:
    """Binds a run's model, compares the graph with the plan on real inputs, and writes it if they agree.

    `data`: a .npz with `inputs`. `round_number`: by default the newest. Raises NotFound for a run, a round or a file
    that is not there, MoonfedError if the probabilities differ by more than the bound; then nothing is written.
    """
    if not output.absolute().parent.is_dir():
        raise InvalidInput(f"output is {str(output)!r}; its directory must exist")
    run = runs.get(run_name)
    manifest = runs.manifest(run)
    inputs = read_inputs(data, manifest.input)
    chosen = global_model(run, runs.rounds(run_name), manifest, round_number)
    vector = open_model(runs.fetch(chosen.ref), manifest.tensors)
    origin = Origin(run=run.run, round=chosen.round, manifest=run.manifest.sha256, model=chosen.ref.sha256)
    graph = bind(runs.fetch(manifest.files[GRAPH_FILE]).read_bytes(), vector, manifest, origin)
    plan = load_plan(runs.fetch(manifest.files[PLAN_FILE]), "cpu")
    give_model(plan, vector, manifest)
    difference = require_parity(graph, plan, inputs, bound=bound)
    write_durably(output, graph)
    return WrittenModel(path=output, run=run.run, round=chosen.round, model=chosen.ref.sha256, max_abs_diff=difference)
