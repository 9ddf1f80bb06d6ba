"""Starting and following runs over real TLS."""

from __future__ import annotations

import pytest

from moonfed.bundle.manifest import MANIFEST_FILE
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, SchemaMismatch
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, start, upload
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes, start_run
from tests.support.refusals import refused
from tests.support.signatures import signature


def test_runs_are_named_after_the_bundle(fleet: Fleet) -> None:
    names = [fleet.start("").run for _ in range(3)]
    assert names == ["digits", "digits-2", "digits-3"]
    with pytest.raises(AlreadyExists, match="'digits'"):
        fleet.start("digits")
    with refused(InvalidInput, "name", "../digits"):
        fleet.start("../digits")
    listed = ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
    assert [run.run for run in listed] == names
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.run("other")


def test_a_bundle_that_is_not_whole_starts_nothing(fleet: Fleet) -> None:
    bundle = coordinator.make_bundle()
    with pytest.raises(NotFound):
        start(fleet, manifest=bundle.ref.sha256)
    upload(fleet, bundle.contents[MANIFEST_FILE])
    signed = upload(fleet, bundle.signature)
    with pytest.raises(NotFound, match=r"plan\.pt.* was not uploaded|initial\.safetensors|model\.onnx"):
        start(fleet, manifest=bundle.ref.sha256, signature=signed)
    manifest, signed = b"not a manifest", upload(fleet, signature(b"not a manifest").to_bytes())
    with pytest.raises(InvalidInput, match="not JSON"):
        start(fleet, manifest=upload(fleet, manifest), signature=signed)


def test_a_run_starts_from_given_weights_that_fit(fleet: Fleet) -> None:
    bundle, path = coordinator.make_bundle(), fleet.tmp / "given.safetensors"
    path.write_bytes(model_bytes(4.0))
    control, chosen = fleet.operator.control, coordinator.settings()
    run = start_run(control, "given", bundle, chosen, path)
    assert fleet.operator.model(run.model) == path.read_bytes()
    path.write_bytes(model_bytes(4.0, coordinator.SPECS[:2]))
    with pytest.raises(SchemaMismatch, match=r"norm\.running_mean"):
        start_run(control, "other", bundle, chosen, path)
    with pytest.raises(SchemaMismatch, match=r"'norm\.running_mean' is missing"):
        start(
            fleet,
            manifest=bundle.ref.sha256,
            signature=bundle.signature_sha256,
            model=upload(fleet, path.read_bytes()),
        )
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.run("other")


def test_metrics_are_kept_for_models_that_exist(fleet: Fleet) -> None:
    fleet.start()
    watching = fleet.operator.watch("run")
    next(watching)

    def record(round_: int, **metrics: float) -> None:
        request = control_pb2.RecordMetricsRequest(run="run", round=round_, metrics=metrics)
        ask(fleet.operator.control.RecordMetrics, request)

    record(0, accuracy=0.125)
    event = next(watching)
    assert (event.kind, dict(event.metrics)) == ("metrics_recorded", {"accuracy": 0.125})
    assert dict(fleet.operator.run("run").initial_metrics) == {"accuracy": 0.125}
    with pytest.raises(NotFound, match="no global model 1"):
        record(1, accuracy=0.5)
    with pytest.raises(InvalidInput, match="metric 'accuracy' is inf"):
        record(0, accuracy=float("inf"))


def test_watching_shows_a_whole_run_in_order(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start(rounds=1)
    watching = fleet.operator.watch("run")
    assert next(watching).run.waiting == "waiting for 1 more device: 0 eligible, 1 needed"
    session = device.connect()
    device.submit(session.assignment(), model_bytes(1.0))
    kinds = [event.kind for event in watching]
    assert kinds == ["round_opened", "update_received", "round_committed", "metrics_recorded", "ended"]
