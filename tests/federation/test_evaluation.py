"""Evaluations on devices: real programs, compared with the ONNX graph on the same samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.store import ref_of_file
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.data.data_set import DataSet
from moonfed.data.npz import NpzSource
from moonfed.edge_client.data.split import split
from moonfed.errors import MoonfedError
from moonfed.experiments.child_processes import run
from moonfed.export.binding import bind_file
from moonfed.export.scoring import Predictor
from moonfed.fleet.evaluation import MIN_HOLDOUT

from .conftest import Federation

pytestmark = pytest.mark.slow

HOLDOUT = 0.25
SCORED = ("cam-1", "cam-2")


def evaluate(federation: Federation, *options: str) -> dict[str, Any]:
    command = ("moonfed-coordinator", "run", "evaluate", "r", *federation.operator, *options, "--json")
    found = json.loads(run(*command))["on_devices"]
    assert isinstance(found, dict)
    return found


def held_out(federation: Federation, bundle: Path, device: str) -> DataSet:
    manifest = read_bundle(bundle).manifest
    source = federation.parts / f"device-{device.split('-')[1]}.npz"
    return split(NpzSource(source).read(manifest.input, manifest.target), HOLDOUT)[1]


def correct(bundle: Path, model: Path, samples: DataSet) -> int:
    """The correct predictions by ONNX Runtime, which no device uses."""
    graph = bind_file((bundle / GRAPH_FILE).read_bytes(), model, read_bundle(bundle).manifest)
    return int((Predictor(graph).predict(samples.inputs).argmax(axis=1) == samples.labels).sum())


def expected(federation: Federation, bundle: Path, model: Path, device: str) -> dict[str, Any]:
    samples = held_out(federation, bundle, device)
    own = federation.directory / device / "local" / "r" / "model.safetensors"
    right, own_right = correct(bundle, model, samples), correct(bundle, own, samples)
    return {
        "device": device,
        "samples": len(samples),
        "score": right / len(samples),
        "local_score": own_right / len(samples),
    }


def weights(federation: Federation, round_: int) -> Path:
    file = federation.directory / f"model-{round_}.safetensors"
    options = ("--round", str(round_), "--output", str(file))
    run("moonfed-coordinator", "run", "weights", "r", *federation.operator, *options)
    return file


def small_part(federation: Federation) -> str:
    """Samples of which the holdout has one too few."""
    with np.load(federation.parts / "device-3.npz") as arrays:
        few = {name: values[: round((MIN_HOLDOUT - 1) / HOLDOUT)] for name, values in arrays.items()}
    file = federation.directory / "few.npz"
    np.savez(file, allow_pickle=False, **few)
    return str(file)


def started(federation: Federation, bundle: Path) -> None:
    """Train two rounds on two devices with a holdout, one without, and one whose holdout is too small.

    A fifth has no data.
    """
    federation.serve()
    federation.enrol(*SCORED, "cam-3", "cam-4", "cam-5")
    federation.start_device("cam-5", data="")
    for name in SCORED:
        federation.start_device(name, "--holdout", str(HOLDOUT))
    federation.start_device("cam-3")
    federation.start_device("cam-4", "--holdout", str(HOLDOUT), data=small_part(federation))
    federation.until_online(5)
    federation.start_run(bundle, "r", "--rounds", "2", "--minimum-devices", "4", "--cohort", "all")
    federation.until_finished("r")
    for name in (*SCORED, "cam-3", "cam-4"):
        federation.until_log(name, "run r has ended")


def test_devices_score_what_the_graph_predicts_on_the_same_samples(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    bundle = make_bundle("fedavg", epochs=1)
    started(federation, bundle)
    found = evaluate(federation)
    scores = [expected(federation, bundle, weights(federation, 2), device) for device in SCORED]
    assert found["scores"] == scores
    assert found["round"] == 2
    assert {group["reason"]: group["devices"] for group in found["skipped"]} == {
        "this device has no holdout": ["cam-3"],
        f"the holdout of this device has fewer than {MIN_HOLDOUT} samples": ["cam-4"],
    }
    assert found["waiting"] == []
    accuracies = [score["score"] for score in scores]
    worse = sum(score["score"] < score["local_score"] for score in scores)
    assert (found["median"], found["worst_decile"]) == (sum(accuracies) / 2, min(accuracies))
    assert (found["compared"], found["worse"]) == (2, worse)
    require_inference_only(federation, "cam-5")
    require_shown(federation, found)
    require_test_sets(federation, found)
    require_another_model_and_repetition(federation, bundle, found)


def require_inference_only(federation: Federation, name: str) -> None:
    """The device without data was in no round; it is online, and the list shows what it is for."""
    assert all(name not in entry.counted for entry in federation.rounds("r"))
    (device,) = (
        found
        for found in json.loads(run("moonfed-coordinator", "device", "list", *federation.operator, "--json"))
        if found["device"] == name
    )
    assert (device["online"], device["inference_only"], device["rounds"]) == (True, True, 0)
    listed = run("moonfed-coordinator", "device", "list", *federation.operator)
    assert [line.split()[1:4] for line in listed.splitlines() if line.startswith(name)] == [
        ["online", "inference", "only"]
    ]
    assert "is for inference only" in federation.log(name)
    assert "assigned" not in federation.log(name)


def require_shown(federation: Federation, found: Mapping[str, Any]) -> None:
    """The run shows the evaluation, and the audit trail who asked for it."""
    text = run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--all")
    assert f"model 2 on 2 devices: accuracy median {found['median']:.4f}" in text
    assert "  1 skipped: this device has no holdout: cam-3\n" in text
    shown = json.loads(run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--json"))
    assert [one["on_devices"] for one in shown["evaluations"] if one["on_devices"]] == [found]
    audit = run("moonfed-coordinator", "audit", *federation.operator, "--call", "EvaluateRun", "--json")
    record = json.loads(audit.splitlines()[-1])
    assert record["details"].startswith("evaluate the newest model of run 'r' on devices")
    assert record["outcome"] == "done"


def require_test_sets(federation: Federation, found: Mapping[str, Any]) -> None:
    """Models have scores on several sets next to each other; the card has those of its model, and the devices'."""
    test = federation.parts / "test.npz"
    with np.load(test) as arrays:
        night, wrong = federation.directory / "night.npz", federation.directory / "wrong.npz"
        np.savez(night, allow_pickle=False, inputs=arrays["inputs"][::2] // 2, labels=arrays["labels"][::2])
        np.savez(wrong, allow_pickle=False, inputs=arrays["inputs"][:, :7], labels=arrays["labels"])
    assert len(score(federation, test)) == len(score(federation, night, "--test-set", "night")) == 3
    assert score(federation, night, "--test-set", "night") == []
    for options, message in (
        ((str(wrong), "--test-set", "night"), "have shape"),  # although every model has a score
        ((str(wrong), "--test-set", "night", "--again"), "have shape"),
        ((str(test), "--test-set", "night"), "scores on test set 'night' of run 'r' are of data with the sha256"),
    ):
        with pytest.raises(MoonfedError, match=message):
            run("moonfed-export", "evaluate", "r", *federation.operator, "--data", *options)
    again = score(federation, test, "--test-set", "night", "--again")
    assert [line["samples"] for line in again] == [360] * 3
    shown = json.loads(run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--json"))
    recorded = [(one["round"], one["test_set"], one["score"]["sha256"]) for one in shown["evaluations"] if one["score"]]
    assert recorded == [(number, name, ref_of_file(test).sha256) for number in range(3) for name in ("night", "test")]
    text = run("moonfed-coordinator", "run", "show", "r", *federation.operator, "--all")
    assert f"test set night, model 2: accuracy {again[2]['metrics']['accuracy']:.4f}" in text
    require_card(federation, test, found)


def score(federation: Federation, data: Path, *options: str) -> list[dict[str, Any]]:
    """The scores that the command `evaluate` records and prints."""
    command = ("moonfed-export", "evaluate", "r", *federation.operator, "--data", str(data), *options, "--json")
    return [json.loads(line) for line in run(*command).splitlines()]


def require_card(federation: Federation, test: Path, found: Mapping[str, Any]) -> None:
    """The card of the published model."""
    models = federation.directory / "models"
    options = ("--data", str(test), "--name", "digits", "--output", str(models))
    run("moonfed-export", "repository", "r", *federation.operator, *options)
    card = (models / "digits" / "2" / "MODEL_CARD.md").read_text()
    assert "## Quality on test set night" in card
    assert "## Quality on test set test" in card
    median, decile = f"{found['median']:.4f} in the median", f"{found['worst_decile']:.4f} in the worst decile"
    assert f"Measured by 2 devices on data that they had held out: accuracy {median}, {decile}." in card
    assert f"own latest model on {found['worse']} of 2 devices. 2 other devices" in card


def require_another_model_and_repetition(federation: Federation, bundle: Path, found: Mapping[str, Any]) -> None:
    """A repeated request returns the same evaluation, `--again` makes another, and other models have their own."""
    assert evaluate(federation) == found
    again = evaluate(federation, "--again")
    assert again["number"] == 2
    assert again["scores"] == found["scores"]
    first = evaluate(federation, "--round", "0")
    assert first["scores"] == [expected(federation, bundle, weights(federation, 0), device) for device in SCORED]
