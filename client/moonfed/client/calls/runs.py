"""Calls about runs: start, list, control, evaluate, and the weights of their models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from moonfed.blobs.schema import TensorSpec
from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.blobs.tensors import open_model, require_finite, split, write_model
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.bundle.manifest import Manifest
from moonfed.client.calls.steps import Steps, ask, ask_all, fetch, send, sleep
from moonfed.client.convert import runs as convert
from moonfed.client.records.evaluations import DeviceEvaluation, Evaluation
from moonfed.client.records.runs import Round, Run
from moonfed.control.recipe import override, read_recipe_file, run_keys
from moonfed.control.run_settings import RunSettings
from moonfed.errors import InvalidInput, NotFound, SchemaMismatch
from moonfed.signing.bundle_signature import signed_by
from moonfed.transport.client import from_message
from moonfed.transport.upload import bundle_files
from moonfed.v1 import control_pb2

Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]
Initial: TypeAlias = str | Path | Mapping[str, npt.NDArray[np.float32]]  # a run, a .safetensors file, or tensors

MODELS_NAMED = 10  # in an error message
POLL_SECONDS = 0.5  # between two looks at an evaluation


def start(
    bundle: Bundle | Path,
    name: str,
    initial: Initial | None,
    recipe: Path | RunSettings | None,
    settings: Mapping[str, object],
    *,
    allow_empty: bool,
) -> Steps[Run]:
    """Upload a bundle and start a run of it."""
    opened = bundle if isinstance(bundle, Bundle) else read_bundle(bundle, signed_by(None))
    given = override(_keys(recipe), settings)
    chosen = RunSettings.read(given).to_json(given)
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory, bundle_files(opened) as files:
        model, weights = yield from _initial(initial, opened, Path(directory) / "weights")
        # The upload retries for a long time; an unreachable coordinator must fail at once.
        yield from ask(control_pb2.ListRunsReply, "ListRuns", control_pb2.ListRunsRequest())
        yield from send({**files, **weights})
        request = control_pb2.StartRunRequest(
            name=name,
            manifest=opened.ref.sha256,
            signature=opened.signature_sha256,
            model=model,
            settings=chosen,
            allow_empty=allow_empty,
        )
        started = yield from ask(control_pb2.Run, "StartRun", request, attempts=1)
    return convert.run(started)


def _keys(recipe: Path | RunSettings | None) -> dict[str, Any]:
    """Return the keys of a run's recipe."""
    if isinstance(recipe, Path):
        return run_keys(read_recipe_file(recipe))
    return recipe.to_document() if recipe else {}


def runs() -> Steps[list[Run]]:
    """List all runs, oldest first."""
    reply = yield from ask(control_pb2.ListRunsReply, "ListRuns", control_pb2.ListRunsRequest())
    return [convert.run(message) for message in reply.runs]


def run(name: str) -> Steps[Run]:
    """Return one run."""
    return convert.run((yield from _get(name)))


def pause(name: str) -> Steps[Run]:
    """Pause a run."""
    return convert.run((yield from ask(control_pb2.Run, "PauseRun", control_pb2.PauseRunRequest(run=name))))


def resume(name: str) -> Steps[Run]:
    """Resume a paused run."""
    return convert.run((yield from ask(control_pb2.Run, "ResumeRun", control_pb2.ResumeRunRequest(run=name))))


def stop(name: str) -> Steps[Run]:
    """Stop a run for good."""
    return convert.run((yield from ask(control_pb2.Run, "StopRun", control_pb2.StopRunRequest(run=name))))


def delete(name: str) -> Steps[int]:
    """Delete a run that has ended; return the bytes freed."""
    request = control_pb2.DeleteRunRequest(run=name)
    reply = yield from ask(control_pb2.DeleteRunReply, "DeleteRun", request, attempts=1)
    return reply.bytes


def rounds(name: str, last: int = 0, number: int = 0) -> Steps[list[Round]]:
    """List a run's rounds, oldest first."""
    return [convert.past_round(name, message) for message in (yield from _rounds(name, last, number))]


def weights(name: str, number: int | None = None) -> Steps[Weights]:
    """Fetch and verify a global model."""
    found = yield from _get(name)
    chosen = found.round if number is None else number
    ref = yield from _model(found, chosen)
    manifest = Manifest.from_bytes((yield from fetch(from_message(found.manifest))))
    content = yield from fetch(ref)
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "model"
        path.write_bytes(content)
        vector = np.array(open_model(path, manifest.tensors), dtype=np.float32)
    return split(vector, manifest.tensors)


def evaluate(name: str, number: int | None, deadline: float, *, again: bool, wait: bool) -> Steps[Evaluation]:
    """Ask devices to score a global model; wait for their answers if asked to."""
    request = control_pb2.EvaluateRunRequest(run=name, round=number, deadline_seconds=deadline, again=again)
    began = yield from ask(control_pb2.DeviceEvaluation, "EvaluateRun", request)
    found = convert.on_devices(began)
    while wait and _is_open(found):
        yield from sleep(POLL_SECONDS)
        listed = yield from evaluations(name)
        same = [one for one in listed if one.test_set is None and one.round == found.round]
        if not same:
            raise NotFound(f"the evaluation of global model {found.round} of run {name!r} was deleted")
        found = same[-1]
    return found


def evaluations(name: str) -> Steps[list[Evaluation]]:
    """List the evaluations of a run's global models, by round."""
    request = control_pb2.ListEvaluationsRequest(run=name)
    return [
        convert.evaluation(name, message)
        for message in (yield from ask_all(control_pb2.Evaluation, "ListEvaluations", request))
    ]


def _get(name: str) -> Steps[control_pb2.Run]:
    return (yield from ask(control_pb2.Run, "GetRun", control_pb2.GetRunRequest(run=name)))


def _rounds(name: str, last: int = 0, number: int = 0) -> Steps[list[control_pb2.Round]]:
    request = control_pb2.ListRoundsRequest(run=name, last=last, round=number)
    return (yield from ask_all(control_pb2.Round, "ListRounds", request))


def _is_open(evaluation: Evaluation) -> bool:
    return isinstance(evaluation.details, DeviceEvaluation) and evaluation.details.closed is None


def _model(found: control_pb2.Run, number: int) -> Steps[BlobRef]:
    """Return the global model of a round; raise NotFound if there is none, or none any longer."""
    if number == found.round:
        return from_message(found.model)
    if number == 0:
        return from_message(found.initial_model)
    if not 0 < number < found.round:
        raise NotFound(f"run {found.run!r} has no global model of round {number}; its newest is {found.round}")
    for one in (yield from _rounds(found.run, number=number)):
        if one.HasField("model"):
            return from_message(one.model)
    kept = [one for one in (yield from _rounds(found.run)) if one.HasField("model")]
    newest = ", ".join(str(one.round) for one in kept[-MODELS_NAMED:])
    raise NotFound(f"the global model of round {number} of run {found.run!r} was deleted; the newest are {newest}")


def _initial(initial: Initial | None, bundle: Bundle, scratch: Path) -> Steps[tuple[str, dict[BlobRef, Path]]]:
    """Return the sha256 of the initial weights, empty for the bundle's, and the file to upload, if there is one."""
    if initial is None:
        return "", {}
    if isinstance(initial, str):
        return (yield from _get(initial)).model.sha256, {}
    specs = bundle.manifest.tensors
    path = initial if isinstance(initial, Path) else _written(initial, specs, scratch)
    if not path.is_file():
        raise NotFound(f"initial is {str(path)!r}; there is no such file")
    require_finite(open_model(path, specs), specs)
    ref = ref_of_file(path)
    return ref.sha256, {ref: path}


def _written(given: Mapping[str, npt.NDArray[np.float32]], specs: tuple[TensorSpec, ...], path: Path) -> Path:
    """Write tensors as a model."""
    expected = {spec.name: spec.shape for spec in specs}
    if unknown := sorted(given.keys() ^ expected.keys()):
        raise SchemaMismatch(f"initial has other tensors than the bundle; the difference is {', '.join(unknown)}")
    for name, shape in expected.items():
        if np.shape(given[name]) != shape:
            raise InvalidInput(f"initial[{name!r}] has shape {np.shape(given[name])}; it must be {shape}")
    write_model(path, specs, (np.asarray(given[spec.name], dtype=np.float32).reshape(-1) for spec in specs))
    return path
