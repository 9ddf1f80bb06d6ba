"""Checked ONNX files of a run's global model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import open_model
from moonfed.bundle.manifest import (
    GRAPH_FILE,
    MANIFEST_FILE,
    PERSONAL_FILE,
    PLAN_NAMES,
    Manifest,
    graph_name,
    output_shape,
    parts_of,
)
from moonfed.control.runs import Run
from moonfed.data.data_set import DataSet
from moonfed.data.source import IGNORED, Source
from moonfed.errors import InvalidInput
from moonfed.export.binding import ModelOrigin, bind, read_metadata, require_complete, with_metadata
from moonfed.export.coordinator_client import CoordinatorClient, global_model
from moonfed.export.parity import BATCHES, BOUND, Predict, require_parity
from moonfed.files import write_durably
from moonfed.models.release_manifest import WEIGHTS_FILE
from moonfed.plan.selection import choose_plan, local_interfaces
from moonfed.release.simplify import simplify
from moonfed.sandbox.plan_process import plan_process
from moonfed.sandbox.shared_predictions import SharedPredictions


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """A run's model as an ONNX graph whose predictions match the plan's."""

    graph: bytes  # the file, including its metadata
    manifest: Manifest  # of the run's bundle
    manifest_ref: BlobRef  # its file
    weights: BlobRef
    run: str
    round: int  # 0: the run's initial weights
    max_abs_diff: float  # between a probability of the graph and the plan's


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenModel:
    """A written model, and how close its predictions are to the plan's."""

    path: Path
    run: str
    round: int
    model: str  # sha256 of the weights
    max_abs_diff: float  # between two probabilities


def check_model(
    runs: CoordinatorClient,
    run_name: str,
    data: Source,
    *,
    round_number: int | None = None,
    bound: float = BOUND,
    embeddings: bool = False,
) -> CheckedModel:
    """Check the model of a run of this name, on samples that are read for it, as `check_on` does."""
    run = runs.run(run_name)
    manifest = runs.manifest(run)
    require_complete(manifest)
    samples = data.read(manifest.input, manifest.target, labels=IGNORED)
    return check_on(runs, run, samples, round_number=round_number, bound=bound, embeddings=embeddings)


def check_on(
    runs: CoordinatorClient,
    run: Run,
    samples: DataSet,
    *,
    round_number: int | None = None,
    bound: float = BOUND,
    embeddings: bool = False,
) -> CheckedModel:
    """Bind a run's model, fold constants in the graph, and compare it with the plan on real inputs.

    Personal tensors have their initial values, and are not folded: each device replaces them with its own.
    `samples`: real ones, without labels. `round_number`: by default the newest. `embeddings`: z as a second output. The
    same model, samples and bound give the same bytes. Raises NotFound for a missing run, round or file, MoonfedError if
    the outputs differ by more than the bound, InvalidInput for embeddings that the run's bundle does not have.
    """
    manifest = runs.manifest(run)
    chosen = global_model(run, runs.rounds(run.run), round_number)
    vector = open_model(runs.fetch(chosen.ref), manifest.tensors)
    origin = ModelOrigin(run=run.run, round=chosen.round, manifest=run.manifest.sha256, model=chosen.ref.sha256)
    template = runs.fetch(manifest.files[GRAPH_FILE]).read_bytes()
    own = open_model(runs.fetch(manifest.files[PERSONAL_FILE]), manifest.personal) if manifest.personal else None
    names = [graph_name(spec.name) for spec in manifest.personal]
    graph = simplify(bind(template, vector, manifest, origin, embeddings=embeddings, personal=own), names)
    weights = runs.fetch(chosen.ref).read_bytes()
    parts = {name: runs.fetch(ref).read_bytes() for name, ref in parts_of(manifest).items()}
    name = PLAN_NAMES[choose_plan(manifest, local_interfaces())]
    with sandboxed_plan(manifest, {name: runs.fetch(manifest.files[name]).read_bytes()}, weights, parts) as plan:
        difference = require_parity(graph, plan, samples.inputs, bound=bound)
    # The difference itself is left out: its digits depend on the processor, so the same model would give a different
    # file elsewhere, which a repository that has the model would reject. Report and model card show it.
    checked_with = {"parity_bound": f"{bound:g}", "parity_data_sha256": samples.sha256()}
    if names:
        checked_with["personal"] = json.dumps(names)
    return CheckedModel(
        graph=with_metadata(graph, {**read_metadata(graph), "variant": "float32", **checked_with}),
        manifest=manifest,
        manifest_ref=run.manifest,
        weights=chosen.ref,
        run=run.run,
        round=chosen.round,
        max_abs_diff=difference,
    )


@contextmanager
def sandboxed_plan(
    manifest: Manifest, plan: Mapping[str, bytes], weights: bytes, parts: Mapping[str, bytes]
) -> Iterator[Predict]:
    """Load a plan in the sandbox; return the function by which it predicts with these weights.

    `plan`: its file, by name. `parts`: the bundle's files of frozen and of personal tensors.
    """
    contents = {MANIFEST_FILE: manifest.to_bytes(), **plan, WEIGHTS_FILE: weights, **parts}
    shape = output_shape(manifest.input, manifest.target)
    shared = SharedPredictions(shape)
    settings = {"input": manifest.input.to_document(), "file": shared.samples, "results": shared.results}
    files, size = (shared.samples, shared.results), 4 * max(BATCHES) * prod(shape)
    try:
        with plan_process("moonfed.sandbox.plan_task", contents, settings, files, size) as child:
            yield lambda inputs: shared.predict(child, inputs)
    finally:
        shared.close()


def write_onnx(
    runs: CoordinatorClient,
    run_name: str,
    data: Source,
    output: Path,
    *,
    round_number: int | None = None,
    bound: float = BOUND,
    embeddings: bool = False,
) -> WrittenModel:
    """Check a model as `check_model` does, and write it only if graph and plan agree."""
    require_writable(output)
    checked = check_model(runs, run_name, data, round_number=round_number, bound=bound, embeddings=embeddings)
    write_durably(output, checked.graph)
    return written_model(output, checked)


def require_writable(output: Path) -> None:
    """Raise InvalidInput unless a file can have this path: its directory exists and it is not a directory itself."""
    if not output.absolute().parent.is_dir():
        raise InvalidInput(field="output", value=output, rest="; its directory must exist")
    if output.is_dir():
        raise InvalidInput(field="output", value=output, rest=", a directory; it must be a file")


def written_model(output: Path, checked: CheckedModel) -> WrittenModel:
    """Describe a checked model that was written to `output`."""
    return WrittenModel(
        path=output,
        run=checked.run,
        round=checked.round,
        model=checked.weights.sha256,
        max_abs_diff=checked.max_abs_diff,
    )
