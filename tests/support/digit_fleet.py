"""A federation that really learns, cheaply: devices on the raw wire fit a linear classifier to scanned digits."""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import grpc
import numpy as np
from sklearn.datasets import load_digits

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec, Vector
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import ACCURACY, MANIFEST_FILE, PLAN_FILE, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.control.held_out_score import HeldOutScore
from moonfed.errors import MoonfedError, Unavailable
from moonfed.models.release_manifest import (
    CARD_FILE,
    EVALUATION_FILE,
    MODEL_FILE,
    VARIANT_FILES,
    WEIGHTS_FILE,
    Evaluation,
)
from moonfed.plan.training_spec import TrainingSpec
from moonfed.release.pictures import Picture, confusion
from moonfed.signing.statement import RELEASE
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2, fleet_pb2
from moonfed.version import PLAN_INTERFACE
from tests.support.coordinator import Device, OperatorCalls, ask, model_bytes, model_values
from tests.support.operator_records import score_message
from tests.support.release_fleet import Installer, Signed, fetch
from tests.support.releases import release_manifest
from tests.support.signatures import signature, signed

CLASSES = tuple("0123456789")
DIGITS = (TensorSpec("head.bias", (10,), "parameter"), TensorSpec("head.weight", (10, 64), "parameter"))
Labels = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
TEST = 360  # of 1,797 samples


@lru_cache(maxsize=1)
def digits() -> tuple[Vector, Labels]:
    """Pixels [1797, 64] from 0 to 1, and labels, in a fixed random order; the first TEST are held out."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    return (found.data[order] / 16).astype("<f4"), found.target[order].astype(np.int64)


def digits_bundle(name: str = "digits") -> Bundle:
    start = model_bytes(0.0, DIGITS)
    onnx = b":\x08\x12\x06tested"
    contents = {"plan.pt": b"a plan that no coordinator opens", "model.onnx": onnx, "initial.safetensors": start}
    manifest = Manifest(
        name=name,
        model="linear",
        method="fedavg",
        previous_models=0,
        training=TrainingSpec(epochs=1, batch_size=16, hyperparameters={"learning_rate": 0.05}),
        input=InputSpec(kind="features", shape=(64,)),
        target=class_target(CLASSES),
        tensors=DIGITS,
        plan=PlanSpec(
            interface=PLAN_INTERFACE, minimum_torch="2.4", built_with_torch="2.6", activation_bytes=0
        ),
        files={file: ref_of_bytes(content) for file, content in contents.items()},
    )  # fmt: skip
    return signed(Bundle(manifest, {MANIFEST_FILE: manifest.to_bytes(), **contents}))


def probabilities(model: Vector, inputs: Vector) -> Vector:
    scores = inputs @ model[10:].reshape(10, 64).T + model[:10]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def trained(model: Vector, inputs: Vector, labels: Labels, report: Callable[[float], None]) -> tuple[Vector, float]:
    """One epoch of gradient descent in batches of 16; the model, and the mean loss."""
    model, losses = model.copy(), []
    starts = range(0, len(inputs), 16)
    for number, start in enumerate(starts, start=1):
        batch, wanted = inputs[start : start + 16], labels[start : start + 16]
        found = probabilities(model, batch)
        losses.append(float(-np.log(found[np.arange(len(batch)), wanted] + 1e-9).mean()))
        found[np.arange(len(batch)), wanted] -= 1
        model[10:] -= 0.05 * (found.T @ batch / len(batch)).ravel()
        model[:10] -= 0.05 * found.mean(axis=0)
        report(number / len(starts))
    return model, float(np.mean(losses))


def score(model: Vector, test_set: str = "test") -> HeldOutScore:
    """The model's results on the held-out digits."""
    inputs, labels = digits()[0][:TEST], digits()[1][:TEST]
    found = probabilities(model, inputs)
    predicted = found.argmax(axis=1)
    matrix = np.zeros((10, 10), int)
    np.add.at(matrix, (labels, predicted), 1)
    return HeldOutScore(
        test_set=test_set,
        sha256=hashlib.sha256(inputs.tobytes()).hexdigest(),
        samples=len(labels),
        metric=ACCURACY,
        metrics={
            "accuracy": float((predicted == labels).mean()),
            "loss": float(-np.log(found[np.arange(len(labels)), labels] + 1e-9).mean()),
        },
        calibration_error=float(abs(found.max(axis=1).mean() - (predicted == labels).mean())),
        calibration_bins=15,
        classes=CLASSES,
        support=tuple(map(int, matrix.sum(axis=1))),
        predicted=tuple(map(int, matrix.sum(axis=0))),
        correct=tuple(map(int, matrix.diagonal())),
        confusion=tuple(map(int, matrix.ravel())),
    )


def evaluate(calls: OperatorCalls, run: str) -> HeldOutScore:
    """Score every committed model of a run that has not been scored, as `moonfed-export evaluate` does."""
    latest = None
    for found in calls.rounds(run):
        if found.HasField("model") and "accuracy" not in found.metrics:
            try:
                latest = score(model_values(calls.model(found.model), DIGITS))
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.NOT_FOUND:
                    raise
                continue  # the run has deleted it since
            request = control_pb2.RecordScoreRequest(run=run, round=found.round, score=score_message(latest))
            ask(calls.control.RecordScore, request)
    return latest or score(model_values(calls.model(calls.run(run).model), DIGITS))


@dataclass
class DigitDevice:
    """A device with some digits.

    `behave` returns for a round why it declines, or how many seconds it takes; "" spoils its update.
    """

    device: Device
    inputs: Vector
    labels: Labels
    described: Mapping[str, str] = field(default_factory=dict)
    behave: Callable[[int], str | float] = lambda _: 0.0
    held: threading.Event = field(default_factory=threading.Event)  # set: it proceeds
    problems: list[str] = field(default_factory=list)
    ineligible: str = ""
    holdout: dict[str, float] = field(default_factory=dict)  # its metrics

    def start(self) -> None:
        self.held.set()
        self.stopping = threading.Event()
        self.installer = Installer(self.device, stopping=self.stopping)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.held.set()
        if session := getattr(self, "session", None):
            session.leave()
        self.thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                installed = [self.installer.has] if self.installer.has.version else []
                self.session = self.device.connect(
                    installed=installed, fingerprint="f", labels=self.described, samples=len(self.labels)
                )
                while not self.stopping.is_set():
                    with suppress(queue.Empty):
                        self._answer(self.session.next())
            except Unavailable:
                pass
            except MoonfedError as error:
                if not self.stopping.is_set():
                    self.problems.append(repr(error))
            self.stopping.wait(0.2)

    def _answer(self, reply: fleet_pb2.ConnectReply) -> None:
        if reply.HasField("target"):
            self.installer._install(reply.target)
        elif reply.HasField("check"):
            self.device.answer(reply.check, "f", self.ineligible)
        elif reply.HasField("assignment"):
            with suppress(MoonfedError):  # the round may have closed, or the run have been stopped
                self._train(reply.assignment)

    def _train(self, work: fleet_pb2.Assignment) -> None:
        how = self.behave(work.round)
        if isinstance(how, str) and how:
            request = fleet_pb2.DeclineRequest(
                device=self.device.name, run=work.run, round=work.round, attempt=work.attempt, reason=how
            )
            ask(self.device.fleet.Decline, request)
            return
        seconds = how if isinstance(how, float) else 0.0
        reported = time.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            self.stopping.wait(seconds / (len(self.inputs) / 16 + 1))
            self.held.wait()
            if time.monotonic() - reported > 0.2:
                reported = time.monotonic()
                self.device.report(work, fraction)

        self.device.report(work, 0.01)
        model = model_values(fetch(self.device, work.blobs["model"]), DIGITS)
        found, loss = trained(model, self.inputs, self.labels, report)
        content = model_bytes(found if how != "" else np.full(650, np.nan), DIGITS)
        self.device.submit(work, content, samples=len(self.labels), metrics={"loss": loss, **self.holdout})


def digit_devices(devices: Sequence[Device], labels: Callable[[int], Mapping[str, str]]) -> list[DigitDevice]:
    """Devices that share the training digits, each with an uneven mix of classes."""
    inputs, wanted = digits()[0][TEST:], digits()[1][TEST:]
    rng = np.random.default_rng(7)
    shares = rng.dirichlet(np.full(len(devices), 0.6), 10)  # [10, devices]
    owner = np.array([rng.choice(len(devices), p=shares[label]) for label in wanted])
    for number in range(len(devices)):  # none is empty
        owner[number * 16 : number * 16 + 16] = number
    return [
        DigitDevice(device, inputs[owner == number], wanted[owner == number], labels(number))
        for number, device in enumerate(devices)
    ]


def digits_graph(model: Vector, stored: type[np.floating[Any]]) -> bytes:
    """The classifier as an ONNX file, whose weights are of the type `stored`."""
    from onnx import TensorProto, helper, numpy_helper

    bias, weight = model[:10], model[10:].reshape(10, 64)
    stored_weights = [
        numpy_helper.from_array(values.astype(stored), f"stored.{name}")
        for name, values in (("bias", bias), ("weight", weight))
    ]
    nodes = [
        *(helper.make_node("Cast", [f"stored.{name}"], [name], to=TensorProto.FLOAT) for name in ("bias", "weight")),
        helper.make_node("Gemm", ["inputs", "weight", "bias"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])]
        for name, size in (("inputs", 64), ("probabilities", 10))
    )
    graph = helper.make_graph(nodes, "digits", inputs, outputs, stored_weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def card_of(name: str, version: int, run: str, round_: int, found: HeldOutScore, size: int) -> bytes:
    """A model card as moonfed.release.model_card writes them; `size`: of the ONNX file, in bytes."""
    head = "| " + " | ".join(("", *found.classes)) + " |"
    rule = "|" + " --- |" * (len(found.classes) + 1)
    rows = [
        "| " + " | ".join((one, *map(str, row))) + " |" for one, row in zip(found.classes, found.rows(), strict=True)
    ]
    by_class = [
        f"| {one.name} | {one.precision or 0:.4f} | {one.recall or 0:.4f} | {one.support} |" for one in found.by_class()
    ]
    parts = [
        f"# {name}, version {version}",
        f"Takes a raw sample and returns one of {len(found.classes)} classes; preprocessing is included. It is the "
        f"global model of round {round_} of the federated run `{run}`, trained by fedavg on devices whose data never "
        "left them.",
        "## Model",
        f"|  |  |\n| --- | --- |\n| file | `model.onnx`, {size:,} bytes |\n| input `inputs` | FP32 [any, 64] |\n"
        "| output `probabilities` | FP32 [any, 10] |\n| network | `linear` |\n| moonfed release | `0.2.0` |",
        "## Quality",
        f"On {found.samples:,} samples (sha256 `{found.sha256}`): accuracy {found.score:.4f}, "
        f"loss {found.metrics['loss']:.4f}, expected calibration error {found.calibration_error:.4f} in 15 bins of "
        "equal width.",
        f"![{drawn(found).caption}]({drawn(found).name})",
        "| class | precision | recall | samples |\n| --- | --- | --- | --- |\n" + "\n".join(by_class),
        "Samples by class (rows) and predicted class (columns):",
        "\n".join((head, rule, *rows)),
        "## Limits",
        "- It knows only its classes: it assigns one of them to any input.\n"
        "- The devices' data were never inspected: the model may perform poorly on anything rare among them.",
        "## Use",
        "With ONNX Runtime:\n\n    import numpy, onnxruntime\n\n"
        '    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])\n'
        '    batch = numpy.zeros((1, 64), "float32")  # your samples\n'
        '    (probabilities,) = session.run(["probabilities"], {"inputs": batch})',
    ]
    return ("\n\n".join(parts) + "\n").encode()


def drawn(found: HeldOutScore) -> Picture:
    return confusion(found.classes, np.array(found.rows()), "samples")


def evaluation_of(found: HeldOutScore) -> bytes:
    document = {
        "data_sha256": found.sha256,
        "samples": found.samples,
        "metric": found.metric.name,
        "metrics": dict(found.metrics),
        "classes": [
            {"name": one.name, "precision": one.precision, "recall": one.recall, "support": one.support}
            for one in found.by_class()
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def digits_release(calls: OperatorCalls, run: str, bundle: Bundle, version: int, round_: int) -> Signed:
    """A signed release of a round's model, with a card and an evaluation of its own results."""
    weights = next(one.model for one in calls.rounds(run) if one.round == round_ and one.HasField("model"))
    model = model_values(calls.model(weights), DIGITS)
    found = score(model)
    variants, pictures = {}, {}
    for variant, stored in (("float16", np.float16), ("float32", np.float32)):
        graph, own = digits_graph(model, stored), score(model.astype(stored).astype("<f4"))
        variants[variant] = {name: f"{variant} {version} {name}".encode() for name in VARIANT_FILES} | {
            MODEL_FILE: graph,
            CARD_FILE: card_of("digits", version, run, round_, own, len(graph)),
            EVALUATION_FILE: evaluation_of(own),
        }
        pictures[variant] = {drawn(own).name: drawn(own).content}
    manifest = release_manifest(
        version,
        name="digits",
        run=run,
        round=round_,
        created=int(time.time()),
        input=bundle.manifest.input,
        target=bundle.manifest.target,
        plan={
            MANIFEST_FILE: bundle.ref,
            PLAN_FILE: bundle.manifest.files[PLAN_FILE],
            WEIGHTS_FILE: transport.from_message(weights),
        },
        variants={
            variant: {name: ref_of_bytes(content) for name, content in files.items()}
            for variant, files in variants.items()
        },
        pictures={
            variant: {name: ref_of_bytes(content) for name, content in files.items()}
            for variant, files in pictures.items()
        },
        evaluation=Evaluation(score=found.score, samples=found.samples, data_sha256=found.sha256),
    )
    written = manifest.to_bytes()
    signature_bytes = signature(written, name="digits", version=version, kind=RELEASE).to_bytes()
    stored_files = (*variants.values(), *pictures.values())
    contents = {ref_of_bytes(content): content for files in stored_files for content in files.values()}
    contents |= {ref_of_bytes(written): written, ref_of_bytes(signature_bytes): signature_bytes}
    return Signed(manifest, ref_of_bytes(signature_bytes), contents)
