"""Decoders of messages, settings and options of the coordinator and the device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from moonfed.control.codec import from_message
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.compatibility import with_default_bounds
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.rpc import control_releases, control_service, convert_fleet
from moonfed.coordinator.updates.validation import check_header, largest_files
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.errors import MoonfedError
from moonfed.fleet.messages import (
    read_assignment,
    read_evaluation,
    read_release_report,
    read_run_ended,
    read_target,
)
from moonfed.server_rules import read_server_rule
from moonfed.sizes import parse_size
from moonfed.transport.proxy import parse_proxy
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.fuzzing.decoder import Decoder
from tests.proto.control.test_held_out_score import SCORE
from tests.support import coordinator
from tests.support.operator_records import score_message

M = TypeVar("M", bound=Message)
MANIFEST = coordinator.make_bundle().manifest
BLOB = blob_pb2.Blob(sha256="0" * 64, size=80)
TRAINING = fleet_pb2.TrainingSpec(epochs=1, batch_size=8, hyperparameters={"learning_rate": 0.1})
HEADER = fleet_pb2.SubmitHeader(
    run="r", round=1, attempt=1, blobs={"model": BLOB}, samples=3, steps=2, metrics={"loss": 1.0}
)

REPORT = fleet_pb2.ReportEvaluationRequest(
    run="r", round=2, number=1, model="0" * 64, scores=fleet_pb2.HoldoutScores(samples=30, score=0.5, local_score=0.25)
)


def _message(kind: type[M], read: Callable[[M], object]) -> Callable[[bytes], object]:
    """Parse as gRPC does, which rejects bytes that are not a message of the kind."""

    def decode(content: bytes) -> object:
        return read(kind.FromString(content))

    return decode


def _decoder(name: str, message: M, read: Callable[[M], object]) -> Decoder:
    return Decoder(
        name=name,
        read=_message(type(message), read),
        seeds=lambda: [message.SerializeToString(deterministic=True)],
        rejections=(MoonfedError, DecodeError),
    )


def _check_header(message: fleet_pb2.SubmitHeader) -> None:
    header = convert_fleet.update_header("cam-1", message)
    check_header(header, largest_files(coordinator.make_bundle().manifest, header.encoding), header.encoding)


_OPTIONS: Mapping[str, Callable[[str], object]] = {
    "amount": lambda text: RunSettings.read({"cohort": text}),
    "fraction": lambda text: RunSettings.read({"over_selection": text}),
    "labels": lambda text: RunSettings.read({"labels": text.split("\n")}),
    "pairs": lambda text: RunSettings.read({"reducer_settings": text.split("\n")}),
    "proxy": parse_proxy,
    "size": lambda text: parse_size("max-memory", text, "4GB"),
    "window": TrainingWindow.parse,
}


def _read_option(content: bytes) -> None:
    """Parse the text after the first line, which names the option, or all of it as every option."""
    name, _, text = content.decode("utf-8", "surrogateescape").partition("\n")
    for each in [_OPTIONS[name]] if name in _OPTIONS else _OPTIONS.values():
        each(text)


def _options() -> list[bytes]:
    examples = {
        "amount": "20%",
        "fraction": "0.3",
        "labels": "site=berlin\nkind=camera",
        "pairs": "learning_rate=0.1",
        "proxy": "http://user:word@host:3128",
        "size": "1.5GiB",
        "window": "22:00-06:00",
    }
    return [f"{name}\n{text}".encode() for name, text in examples.items()]


def _read_document(content: bytes) -> None:
    """Read the server rule of a manifest."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        read_server_rule(document)


def _documents() -> list[bytes]:
    rules = [{"name": "fedadam", "server_learning_rate": 0.1}, {"name": "mean", "weighting": "samples"}]
    return [json.dumps(document).encode() for document in rules]


def _read_recipe(content: bytes) -> None:
    settings = with_default_bounds(RunSettings.from_json(content.decode("utf-8", "surrogateescape")), MANIFEST)
    build_reducer(settings)
    assert RunSettings.received(settings.to_json()) == settings


def _recipes() -> list[bytes]:
    chosen = {"rounds": 3, "cohort": "20%", "deadline": 60.5, "labels": {"site": "berlin"}, "trusted_labels": True}
    reducer = {"reducer": "trimmed_mean", "reducer_settings": {"byzantine": 1}}
    robust = {**reducer, "clip_norm": 2.0, "quorum": 5, "seed": 2**60}
    return [
        json.dumps(document).encode() for document in ({}, chosen, robust, {"asynchronous": 4, "sampling": "uniform"})
    ]


MESSAGE_DECODERS = (
    _decoder("submit_header", HEADER, _check_header),
    _decoder(
        "connect_request",
        fleet_pb2.ConnectRequest(
            contract_version="1.3", plan_interfaces=["torchscript/3"], samples=5, labels={"a": "b"}
        ),
        lambda message: convert_fleet.device_info("cam-1", message),
    ),
    _decoder(
        "assignment",
        fleet_pb2.Assignment(run="r", round=2, attempt=1, manifest=BLOB, blobs={"model": BLOB}, training=TRAINING),
        read_assignment,
    ),
    _decoder("run_ended", fleet_pb2.RunEnded(run="r"), read_run_ended),
    _decoder(
        "target_release",
        fleet_pb2.TargetRelease(
            name="digits", deployment=1, version=2, variant="float32", manifest=BLOB, signature=BLOB, max_drop=1.0
        ),
        read_target,
    ),
    _decoder(
        "release_report",
        fleet_pb2.ReportReleaseRequest(
            name="digits",
            deployment=1,
            version=2,
            outcome=fleet_pb2.RELEASE_OUTCOME_DECLINED,
            score=0.5,
            installed=fleet_pb2.InstalledRelease(name="digits", version=1, variant="float32"),
        ),
        lambda message: read_release_report("cam-1", message),
    ),
    _decoder(
        "deploy_release",
        control_pb2.DeployReleaseRequest(name="digits", version=2, labels={"a": "b"}, percent=10.0, max_drop=1.0),
        lambda message: control_releases._new_deployment(message, "ann"),
    ),
    _decoder(
        "evaluation_task",
        fleet_pb2.EvaluationTask(run="r", round=2, number=1, manifest=BLOB, signature=BLOB, model=BLOB, seed=7),
        read_evaluation,
    ),
    _decoder("evaluation_report", REPORT, lambda message: convert_fleet.evaluation_report("cam-1", message)),
    _decoder("held_out_score", score_message(SCORE), lambda message: from_message(HeldOutScore, message)),
    _decoder(
        "upload_request",
        control_pb2.UploadRequest(header=control_pb2.UploadHeader(blobs=[BLOB])),
        control_service._upload_header,
    ),
    Decoder(name="options", read=_read_option, seeds=_options),
    Decoder(name="recipe", read=_read_recipe, seeds=_recipes),
    Decoder(name="documents", read=_read_document, seeds=_documents),
)
