"""The model card states the model's origin, its results and its training; documents are reproducible."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moonfed.control.privacy import PrivacySpent
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.scoring import Score
from moonfed.release.model_card import model_card
from moonfed.release.model_facts import CurvePoint, EvaluationResults, ModelFacts, TrainingHistory
from moonfed.release.model_file import CheckedModel
from moonfed.release.publish import candidate_of_run, gather_facts
from moonfed.v1 import control_pb2
from tests.proto.control.test_confusion_picture import score_of
from tests.proto.control.test_held_out_score import SCORE
from tests.support.control_service import Control
from tests.support.markdown import rows
from tests.support.operator_records import score_message
from tests.support.trained_model import CLASSES, Trained


def history_of(facts: ModelFacts) -> TrainingHistory:
    assert facts.history
    return facts.history


def test_the_card_states_the_models_origin(facts: ModelFacts, checked: CheckedModel, trained_run: Control) -> None:
    card = model_card(facts)
    shown = [row for row in rows(card) if len(row) == 2]
    assert card.startswith("# digits, version 1\n")
    assert "round 1 of the federated run `r`, trained by moon" in card
    assert ["file", f"`model.onnx`, {len(checked.graph):,} bytes"] in shown
    assert ["sha256", f"`{hashlib.sha256(checked.graph).hexdigest()}`"] in shown
    assert ["weights sha256", f"`{trained_run.run.model.sha256}`"] in shown
    assert ["input `inputs`", "UINT8 [any, 8, 8, 1]"] in shown
    assert ["output `probabilities`", "FP32 [any, 10]"] in shown
    assert ["classes", ", ".join(CLASSES)] in shown
    assert ["", "learning_rate = 0.02"] in shown
    assert ["method", "moon with up to 1 previous model"] in shown
    assert ["rounds", "1"] in shown
    assert ["parity bound", "`1e-05`"] in shown
    assert f"differ from the training plan's by {checked.max_abs_diff:.2g} at most" in card


def test_the_curve_ends_at_the_models_round(
    runs: CoordinatorClient, checked: CheckedModel, trained_run: Control, facts: ModelFacts
) -> None:
    trained_run.run.initial_metrics.update({"accuracy": 0.1, "loss": 2.3})
    entry = trained_run.rounds[0]
    entry.counted.extend(["b", "a"])
    entry.metrics.update({"accuracy": 0.95, "loss": 0.25, "train_loss": 0.5})
    later = control_pb2.Round(run="r")
    later.CopyFrom(entry)
    later.round = 2
    abandoned = control_pb2.Round(run="r", round=1, attempt=1, status="abandoned")
    trained_run.rounds[:] = [abandoned, entry, later]
    try:
        history = history_of(gather_facts("digits", 1, candidate_of_run(runs, checked), None))
    finally:
        trained_run.rounds[:] = [entry]
        entry.ClearField("counted")
        entry.metrics.clear()
        trained_run.run.initial_metrics.clear()
    assert history.curve == (
        CurvePoint(round=0, devices=(), score=0.1, loss=2.3),
        CurvePoint(round=1, devices=("a", "b"), score=0.95, loss=0.25),
    )
    shown = rows(model_card(replace(facts, history=history)))
    assert ["0", "0", "0.1000", "2.3000", "█" * 2] in shown
    assert ["1", "2", "0.9500", "0.2500", "█" * 19] in shown
    assert ["devices", "2 in all, 2 in a round"] in shown


PRIVACY = PrivacySpent(
    epsilon=1.42,
    budget=2.0,
    delta=1e-5,
    sampling_rate=120 / 3383,
    noise_multiplier=1.196,
    clip_norm=0.5,
    releases=61,
    rounds=100,
    unprotected=("evaluation of round 1",),
)


def test_the_card_of_a_private_run_states_what_it_spent_and_no_number_of_devices(facts: ModelFacts) -> None:
    assert "## Privacy" not in model_card(facts)
    point = CurvePoint(round=1, devices=("a", "b"), score=0.95, loss=0.25)
    history = replace(history_of(facts), curve=(point,), privacy=PRIVACY)
    card = model_card(replace(facts, history=history))
    shown = rows(card.split("## Privacy")[1].split("\n## ")[0])
    assert ["epsilon", "1.42, of a budget of 2"] in shown
    assert ["delta", "1e-05"] in shown
    assert ["sampling", "Poisson, 3.55 % of the devices in each round"] in shown
    assert ["noise multiplier", "1.196"] in shown
    assert ["rounds charged", "61"] in shown
    assert ["released without noise", "evaluation of round 1"] in shown
    assert ["1", "0.9500", "0.2500", "█" * 19] in rows(card), "no noise covers how many took part"
    assert "devices" not in [row[0] for row in rows(card)]


def test_a_long_curve_is_shown_from_first_to_last_round(facts: ModelFacts) -> None:
    points = tuple(CurvePoint(round=i, devices=(), score=i / 300, loss=None) for i in range(301))
    history = replace(history_of(facts), curve=points)
    shown = [
        int(row[0]) for row in rows(model_card(replace(facts, history=history))) if len(row) == 5 and row[0].isdecimal()
    ]
    assert (shown[0], shown[-1], len(shown)) == (0, 300, 25)
    assert shown == sorted(set(shown))


def test_the_code_in_the_card_runs(
    facts: ModelFacts, checked: CheckedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.removeprefix("    ") for line in model_card(facts).splitlines() if line.startswith("    ")]
    (tmp_path / "model.onnx").write_bytes(checked.graph)
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        names: dict[str, Any] = {}
        exec("\n".join(lines), names)
    assert names["probabilities"].shape == (1, 10)


def test_names_are_escaped_in_tables(facts: ModelFacts) -> None:
    odd = replace(
        facts,
        metadata={**facts.metadata, "target": json.dumps({"kind": "class", "shape": [], "names": ["a|b", "c d"]})},
    )
    assert ["classes", "a\\|b, c d"] in rows(model_card(odd))


def test_documents_are_the_same_in_every_process(checked: CheckedModel, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(checked.graph)
    code = (
        "import sys; from pathlib import Path; from moonfed.data.npz import NpzSource\n"
        "from moonfed.release.publish import *\n"
        "facts = gather_facts('digits', 1, read_candidate(Path(sys.argv[1])), NpzSource(Path(sys.argv[2])))\n"
        "sys.stdout.buffer.write(model_card(facts).encode() + bill_of_materials(facts))"
    )
    written = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "model.onnx"), str(trained.test_file)],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "proto:."},
        ).stdout
        for seed in ("1", "2")
    ]
    assert written[0] == written[1]
    assert b"# digits, version 1" in written[0]


def on_devices(round_: int, *, closed: float = 1.0) -> control_pb2.Evaluation:
    found = control_pb2.DeviceEvaluation(
        run="r",
        round=round_,
        closed=closed,
        metric=control_pb2.Metric(name="accuracy", maximise=True, share=True),
        scores=[control_pb2.DeviceScore(device=f"cam-{number}", samples=9) for number in range(12)],
        median=0.925,
        worst_decile=0.5,
        compared=10,
        worse=3,
        skipped=[control_pb2.Ineligible(reason="no holdout", devices=["cam-1"])],
        waiting=["cam-2"],
    )
    return control_pb2.Evaluation(run="r", round=round_, on_devices=found)


def test_the_card_shows_each_test_set_and_the_devices_of_this_model_only(
    runs: CoordinatorClient, checked: CheckedModel, trained_run: Control
) -> None:
    trained_run.scores.update({(1, "night"): score_message(SCORE), (2, "later"): score_message(SCORE)})
    trained_run.device_evaluations[:] = [on_devices(0), on_devices(1)]
    try:
        facts = gather_facts("digits", 1, candidate_of_run(runs, checked), None)
        trained_run.device_evaluations[:] = [on_devices(1, closed=0.0)]
        under_way = model_card(gather_facts("digits", 1, candidate_of_run(runs, checked), None))
    finally:
        trained_run.scores.clear()
        trained_run.device_evaluations.clear()
    card = model_card(facts)
    assert card.count("## Quality on test set") == 1
    assert f"On 6 samples (sha256 `{SCORE.sha256}`): accuracy 0.6667, loss 0.5000, expected calibration " in card
    assert "error 0.1250 in 15 bins" in card
    shown = rows(card)
    assert ["cat", "0.7500", "1.0000", "3"] in shown
    assert ["fox", "-", "-", "0"] in shown
    assert ["dog", "1", "2", "0"] in shown
    assert "Measured by 12 devices on data that they had held out: accuracy 0.9250 in the median, 0.5000 in" in card
    assert "worse than the device's own latest model on 3 of 10 devices. 2 other devices declined or" in card
    assert "cam-1" not in card
    assert "Its quality has not been measured" not in card
    assert "Quality on devices" not in under_way


def test_a_table_of_the_same_data_is_not_repeated(facts: ModelFacts) -> None:
    score = score_of(3)
    results = EvaluationResults(
        samples=3,
        score=Score(metrics={"accuracy": 1 / 3, "loss": 1.0}),
        classes=tuple(score.by_class()),
        data_sha256=score.sha256,
    )
    for sha256, tables in ((score.sha256, 1), ("b" * 64, 2)):
        history = replace(history_of(facts), scores=(replace(score, sha256=sha256),))
        card = model_card(replace(facts, history=history, results=results))
        assert card.count("| class | precision | recall | samples |") == tables
        assert card.count("## Quality on test set test") == card.count("expected calibration error") == 1


def test_a_card_of_many_classes_names_what_is_confused(facts: ModelFacts) -> None:
    score = score_of(30)
    history = replace(history_of(facts), scores=(score,))
    shown = [row for row in rows(model_card(replace(facts, history=history))) if row[1:] == ["class 0", "1"]]
    assert [row[0] for row in shown] == [f"class {number}" for number in range(1, 11)]
