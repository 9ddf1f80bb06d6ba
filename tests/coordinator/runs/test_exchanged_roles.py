"""Methods that exchange more than the model, over real TLS: downloads, uploads and rejections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.control.run_settings import RunSettings
from moonfed.errors import InvalidInput, SchemaMismatch
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.mean import MeanRule
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import (
    CLASS_MEANS,
    PARAMETERS,
    PROTOTYPES,
    SCAFFOLD,
    SPECS,
    Device,
    make_bundle,
    model_bytes,
    model_values,
)
from tests.support.refusals import refused
from tests.support.secret_draw import cohort_of, secret_of

FEDSSC: Mapping[str, Any] = {
    "method": "fedssc",
    "prototype_devices": 0,
    "downlink": {"prototypes": PROTOTYPES},
    "uplink": {"class_means": CLASS_MEANS},
}


ABOVE_1 = float(np.nextafter(np.float32(1), np.float32(2)))


def change(value: float) -> bytes:
    return model_bytes(value, PARAMETERS)


def class_means(*values: float) -> bytes:
    return model_bytes(np.array(values, np.float32), CLASS_MEANS)


def scaffold_run(fleet: Fleet, **fields: Any) -> tuple[list[Device], list[Any]]:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, bundle=make_bundle(**SCAFFOLD), **fields)
    return devices, [device.connect() for device in devices]


def place(work: fleet_pb2.Assignment) -> tuple[int, int, int, int]:
    return work.round, work.attempt, work.counted_round, work.counted_attempt


def test_a_round_starts_from_the_previous_state_and_names_the_counted_devices(fleet: Fleet) -> None:
    fleet.device("cam-3")  # belongs to the run's fleet, although it never connects: N is 3
    devices, sessions = scaffold_run(fleet, rounds=3, quorum=1)
    first = [one.assignment() for one in sessions]
    assert [set(work.blobs) for work in first] == [{"model"}] * 2, "nobody has computed a variate yet"
    assert [place(work) for work in first] == [(1, 1, 0, 0)] * 2
    for number, (device, work) in enumerate(zip(devices, first, strict=True)):
        device.submit(work, model_bytes(1.0), also={"variate_change": change(number + 1.0)})
    second = [one.assignment() for one in sessions]
    assert [place(work) for work in second] == [(2, 1, 1, 1)] * 2
    assert set(second[0].blobs) == {"model", "variate"}
    variate = fleet.operator.model(second[0].blobs["variate"])
    np.testing.assert_allclose(model_values(variate, PARAMETERS), (1 + 2) / 3, rtol=1e-6)
    devices[0].submit(second[0], model_bytes(2.0), also={"variate_change": change(9.0)})
    decline = fleet_pb2.DeclineRequest(device="cam-2", run="run", round=2, attempt=1, reason="busy")
    devices[1].fleet.Decline(decline)
    third = [one.assignment() for one in sessions]
    assert [place(work) for work in third] == [(3, 1, 2, 1), (3, 1, 1, 1)]
    variate = fleet.operator.model(third[0].blobs["variate"])
    np.testing.assert_allclose(model_values(variate, PARAMETERS), (1 + 2 + 9) / 3, rtol=1e-6)


def test_prototypes_go_down_once_class_means_came_up(fleet: Fleet) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, rounds=2, bundle=make_bundle(**FEDSSC))
    sessions = [device.connect() for device in devices]
    sent = [class_means(1, 0, 1, 1, 2, 0, 0, 7, 8), class_means(1, 0, 0, 3, 6, 0, 0, 0, 0)]
    for device, one, content in zip(devices, sessions, sent, strict=True):
        device.submit(one.assignment(), model_bytes(1.0), also={"class_means": content})
    work = sessions[0].assignment()
    found = model_values(fleet.operator.model(work.blobs["prototypes"]), PROTOTYPES)
    np.testing.assert_allclose(found, [1, 0, 1, 2, 4, 0, 0, 7, 8], rtol=1e-6)
    assert place(work) == (2, 1, 0, 0), "devices keep nothing under this method"


def test_sharing_devices_are_drawn_from_the_runs_secret_in_every_round(fleet: Fleet) -> None:
    names = [f"cam-{number}" for number in range(4)]
    devices = [fleet.device(name) for name in names]
    sessions = [device.connect() for device in devices]

    def course(name: str) -> list[list[float]]:
        """Return, for each round, whose mean became each class's prototype."""
        bundle = make_bundle(**{**FEDSSC, "prototype_devices": 1})
        fleet.start(name, minimum_devices=4, rounds=4, bundle=bundle, seed=7)
        seen = []
        for round_ in range(1, 5):
            work = [one.assignment() for one in sessions]
            assert [(one.run, one.round) for one in work] == [(name, round_)] * 4
            if round_ > 1:
                prototypes = model_values(fleet.operator.model(work[0].blobs["prototypes"]), PROTOTYPES)
                seen.append(prototypes[3::2].tolist())
            for number, device in enumerate(devices):
                content = class_means(1, 1, 1, *[float(number)] * 6)
                device.submit(work[number], model_bytes(1.0), also={"class_means": content})
        list(fleet.operator.watch(name))
        return seen

    def expected(name: str) -> list[list[float]]:
        """Compute the same from the run's secret: each class of each round draws by itself."""
        secret, classes = secret_of(fleet.state, name), range(3)
        drawn = [[cohort_of(secret, round_, f"prototype {c}", names, 1)[0] for c in classes] for round_ in (1, 2, 3)]
        return [[float(names.index(name)) for name in row] for row in drawn]

    runs = ("first", "again", "other")
    found = {name: course(name) for name in runs}
    assert found == {name: expected(name) for name in runs}
    assert len({str(drawn) for drawn in found.values()}) == 3, "the same seed and devices"


def test_the_server_rule_moves_the_model(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start(rounds=2, bundle=make_bundle(server_rule=FedAvgM(server_momentum=0.5)))
    session = device.connect()
    device.submit(session.assignment(), model_bytes(1.0))
    second = session.assignment()
    assert set(second.blobs) == {"model"}, "the rule's momentum is the coordinator's own"
    device.submit(second, model_bytes(3.0))
    ended = list(fleet.operator.watch("run"))[-1].run
    found = model_values(fleet.operator.model(ended.model))
    # w: 0, then 0 + 1, then 1 + (0.5 * 1 + 2); statistics are the mean
    np.testing.assert_allclose(found, [3.5] * 15 + [3.0] * 8, rtol=1e-6)


def test_an_interrupted_update_of_two_files_resumes(fleet: Fleet) -> None:
    devices, sessions = scaffold_run(fleet)
    work, model, also = sessions[0].assignment(), model_bytes(1.0), {"variate_change": change(2.0)}
    with pytest.raises(InvalidInput, match="without a commit"):
        devices[0].submit(work, model, also=also, send=90, commit=False)
    with pytest.raises(InvalidInput, match="send the rest first"):
        devices[0].submit(work, model, also=also, send=100)
    replies = devices[0].submit(work, model, also=also)
    digests = {role: ref_of_bytes(content).sha256 for role, content in {"model": model, **also}.items()}
    assert dict(replies[0].resume.offsets) == dict.fromkeys(digests.values(), 100)
    assert dict(replies[1].receipt.sha256) == digests
    again = devices[0].submit(work, model, also=also)
    assert again[0].resume.offsets[digests["variate_change"]] == len(also["variate_change"]), "all is held"
    assert again[1].receipt == replies[1].receipt
    kept = fleet.state / "spool" / "run" / "1-1" / "updates"
    assert {path.parent.name: path.read_bytes() for path in kept.glob("*/cam-1")} == {"model": model, **also}


def test_two_roles_may_hold_the_same_bytes(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    same, parameters = model_bytes(1.0), tuple(replace(spec, kind="parameter") for spec in SPECS)
    roles: Mapping[str, Any] = {"downlink": {"variate": parameters}, "uplink": {"variate_change": parameters}}
    fleet.start(rounds=2, bundle=make_bundle(tensors=parameters, **roles))
    session = device.connect()
    device.submit(session.assignment(), same, also={"variate_change": same})
    work = session.assignment()
    for role in ("model", "variate"):
        np.testing.assert_array_equal(model_values(fleet.operator.model(work.blobs[role])), 1.0)


@pytest.mark.parametrize(
    ("also", "named"),
    [
        ({}, ("blobs", ["model"])),
        (
            {"variate_change": change(1.0), "class_means": class_means(*[0] * 9)},
            ("blobs", ["class_means", "model", "variate_change"]),
        ),
    ],
)
def test_missing_and_extra_roles_are_rejected_before_the_bytes(
    fleet: Fleet, also: dict[str, bytes], named: tuple[str, object]
) -> None:
    devices, sessions = scaffold_run(fleet)
    with refused(InvalidInput, *named):
        devices[0].submit(sessions[0].assignment(), model_bytes(1.0), also=also)
    assert fleet.operator.run("run").open_round.rejected == ["cam-1"]


BAD = {
    "NaN": (SCAFFOLD, "variate_change", change(float("nan")), "variate_change: tensor 'head.bias' holds NaN"),
    "a model": (SCAFFOLD, "variate_change", model_bytes(1.0), "variate_change: tensor 'norm.running_mean' is not part"),
    "negative": (FEDSSC, "class_means", class_means(1, -1, 0, *[0] * 6), r"class_means: tensor 'mask' holds -1\.0"),
    "half": (FEDSSC, "class_means", class_means(1, 0.5, 0, *[0] * 6), r"class_means: tensor 'mask' holds 0\.5"),
    "a count": (FEDSSC, "class_means", class_means(1, 0, 12, *[0] * 6), r"class_means: tensor 'mask' holds 12\.0"),
    "beyond 1": (
        FEDSSC,
        "class_means",
        class_means(ABOVE_1, 0, 0, *[0] * 6),
        "'mask' holds 1.0000001",
    ),
    "no mask": (FEDSSC, "class_means", class_means(np.nan, 0, 0, *[0] * 6), "class_means: tensor 'mask' holds NaN"),
    "infinite": (FEDSSC, "class_means", class_means(1, 0, 0, np.inf, *[0] * 5), "class_means: tensor 'means' holds"),
    "not shared": (
        FEDSSC,
        "class_means",
        class_means(1, 0, 1, *[2] * 6),
        "'means' holds 2.0 for a class whose 'mask'",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_rejected_by_role_and_tensor(fleet: Fleet, kind: str) -> None:
    method, role, content, message = BAD[kind]
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, bundle=make_bundle(**method))
    sessions = [device.connect() for device in devices]
    with pytest.raises(SchemaMismatch, match=message):
        devices[0].submit(sessions[0].assignment(), model_bytes(1.0), also={role: content})
    assert fleet.operator.run("run").open_round.rejected == ["cam-1"]


@pytest.mark.parametrize(
    ("bundle", "sampling", "message"),
    [
        (make_bundle(method="solo"), "uniform", "method is 'solo'"),
        (
            make_bundle(),
            "samples",
            "--sampling uniform, or export with --server-set weighting=uniform",
        ),
        (make_bundle(**{**SCAFFOLD, "uplink": {}}), "uniform", "must be declared together"),
    ],
)
def test_an_impossible_run_is_rejected_at_the_start(fleet: Fleet, bundle: Any, sampling: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fleet.start(bundle=bundle, sampling=sampling)


def test_a_cohort_is_drawn_by_the_samples_that_devices_tell(fleet: Fleet) -> None:
    small, large = fleet.device("cam-1"), fleet.device("cam-2")
    run = fleet.start(
        rounds=5,
        minimum_devices=2,
        cohort=1,
        quorum=1,
        sampling="samples",
        bundle=make_bundle(server_rule=MeanRule(weighting="uniform")),
    )
    assert RunSettings.received(run.settings).sampling == "samples"
    small.connect(samples=1)
    session = large.connect(samples=10_000_000)
    for _ in range(5):
        large.submit(session.assignment(), model_bytes(1.0), samples=10_000_000)
    list(fleet.operator.watch("run"))
    assert [list(entry.counted) for entry in fleet.operator.rounds("run")] == [["cam-2"]] * 5
    with refused(InvalidInput, "samples", 10000001):
        fleet.device("cam-3").connect(samples=10_000_001)
