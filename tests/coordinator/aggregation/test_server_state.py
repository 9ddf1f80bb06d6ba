"""State that rounds pass on next to the model: SCAFFOLD's control variate and FedSSC's prototypes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.coordinator.aggregation.compatibility import require_consistent
from moonfed.errors import InvalidInput
from moonfed.manifest import Manifest
from moonfed.registry import Selection, Value
from moonfed.server_rules import SERVER_RULES
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.fednova import FedNova
from moonfed.tensors import TensorSpec
from tests.support.aggregation_rounds import SIZE, SPECS, Rounds, make_manifest, momentum_of

PARAMETER_SPECS = (SPECS[0], SPECS[3])
CLASS_MEANS = (TensorSpec("counts", (3,), "statistic"), TensorSpec("means", (3, 2), "statistic"))
PROTOTYPES = (TensorSpec("present", (3,), "statistic"), TensorSpec("prototypes", (3, 2), "statistic"))
F64 = npt.NDArray[np.float64]


def scaffold(**fields: Any) -> Manifest:  # noqa: ANN401
    return make_manifest(
        **{
            "method": "scaffold",
            "downlink": {"variate": PARAMETER_SPECS},
            "uplink": {"variate_change": PARAMETER_SPECS},
            **fields,
        }
    )


def fedssc(k: int, **fields: Any) -> Manifest:  # noqa: ANN401
    return make_manifest(
        **{
            "method": "fedssc",
            "prototype_devices": k,
            "downlink": {"prototypes": PROTOTYPES},
            "uplink": {"class_means": CLASS_MEANS},
            **fields,
        }
    )


@pytest.mark.parametrize("slice_elements", [5, 1 << 20])
def test_the_variate_moves_by_the_counted_devices_share_of_the_run(tmp_path: Path, slice_elements: int) -> None:
    """c after two rounds is the sum of all changes over N, whatever the samples; here |S| is 3, then 2, of N = 8."""
    played = Rounds(tmp_path, scaffold(), np.zeros(SIZE), enrolled=8, slice_elements=slice_elements)
    chance = np.random.default_rng(1)
    first, second = chance.normal(size=(3, 86)), chance.normal(size=(2, 86))
    played.next(np.ones((3, SIZE)), [1, 100, 1000], variate_change=(first, PARAMETER_SPECS))
    np.testing.assert_allclose(played.memory("variate", PARAMETER_SPECS), first.sum(0) / 8, rtol=1e-5, atol=1e-7)
    played.next(np.ones((2, SIZE)), [5, 1], variate_change=(second, PARAMETER_SPECS))
    expected = (first.sum(0) + second.sum(0)) / 8
    np.testing.assert_allclose(played.memory("variate", PARAMETER_SPECS), expected, rtol=1e-5, atol=1e-6)


def test_a_server_rule_and_the_variate_are_kept_together(tmp_path: Path) -> None:
    played = Rounds(tmp_path, scaffold(server_rule=FedAvgM()), np.zeros(SIZE))
    model = played.next(np.ones((2, SIZE)), [1, 1], variate_change=(np.ones((2, 86)), PARAMETER_SPECS))
    assert set(played.state) == {"model", "momentum", "variate"}
    np.testing.assert_array_equal(model, 1)
    np.testing.assert_array_equal(played.memory("variate", PARAMETER_SPECS), 1)


def shared(counts: list[list[int]], means: F64) -> F64:
    """Rows of class_means files; a class that is not shared has zeros."""
    table = np.array(counts, np.float64)
    zeroed = np.where(table[:, :, None] > 0, means, 0)
    return np.concatenate([table, zeroed.reshape(len(counts), -1)], axis=1)


def prototypes(played: Rounds, rows: F64) -> tuple[list[int], F64]:
    """The next round's: which classes have one, and all of them."""
    count = len(rows)
    played.next(np.zeros((count, SIZE)), [1] * count, class_means=(rows, CLASS_MEANS))
    values = played.memory("prototypes", PROTOTYPES)
    return [int(value) for value in values[:3]], values[3:].reshape(3, 2)


def test_all_devices_that_share_a_class_count_alike_in_its_prototype(tmp_path: Path) -> None:
    means = np.random.default_rng(2).normal(size=(3, 3, 2)).astype(np.float32).astype(np.float64)
    counts = [[10, 0, 500], [90, 0, 0], [0, 0, 20]]
    present, found = prototypes(Rounds(tmp_path, fedssc(0), np.zeros(SIZE)), shared(counts, means))
    assert present == [1, 0, 1]
    np.testing.assert_allclose(found[0], (means[0, 0] + means[1, 0]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_allclose(found[2], (means[0, 2] + means[2, 2]) / 2, rtol=1e-6)


def test_a_class_that_is_no_longer_shared_has_no_prototype(tmp_path: Path) -> None:
    played, means = Rounds(tmp_path, fedssc(0), np.zeros(SIZE)), np.ones((2, 3, 2))
    assert prototypes(played, shared([[10, 10, 10]] * 2, means))[0] == [1, 1, 1]
    assert prototypes(played, shared([[10, 0, 10]] * 2, means))[0] == [1, 0, 1]


def powers(devices: int) -> F64:
    """Means whose sums identify the drawn devices: device i has 2^i in every class."""
    return np.broadcast_to(2.0 ** np.arange(devices)[:, None, None], (devices, 3, 2))


def drawn(prototype: float, k: int) -> list[int]:
    total = round(prototype * k)
    return [device for device in range(total.bit_length()) if total >> device & 1]


@pytest.mark.parametrize("k", [1, 2])
def test_k_devices_are_drawn_for_each_class_and_round_evenly(tmp_path: Path, k: int) -> None:
    played, often = Rounds(tmp_path, fedssc(k), np.zeros(SIZE)), Counter[int]()
    joint = Counter[bool]()
    for _ in range(200):
        _, found = prototypes(played, shared([[10, 20, 30]] * 4, powers(4)))
        chosen = [drawn(row[0], k) for row in found]
        assert all(len(devices) == k for devices in chosen)
        often.update(device for devices in chosen for device in devices)
        joint[chosen[0] == chosen[1]] += 1
    expected, deviation = 600 * k / 4, np.sqrt(600 * k / 4 * (1 - k / 4))
    assert all(abs(often[device] - expected) < 4 * deviation for device in range(4))
    assert joint[True] < 100, "classes draw by themselves"


def test_all_sharers_make_a_prototype_if_there_are_fewer_than_k(tmp_path: Path) -> None:
    played = Rounds(tmp_path, fedssc(3), np.zeros(SIZE))
    present, found = prototypes(played, shared([[10, 0, 10], [10, 20, 10], [10, 0, 0], [10, 0, 0]], powers(4)))
    assert present == [1, 1, 1]
    assert len(drawn(found[0, 0], 3)) == 3
    assert (found[1, 0], found[2, 0]) == (2.0, 1.5)


def test_the_draw_depends_on_seed_and_round_and_on_nothing_else(tmp_path: Path) -> None:
    def course(name: str, seed: int, weights: int) -> list[bytes]:
        played = Rounds(tmp_path / name, fedssc(1), np.zeros(SIZE), seed=seed)
        rows, files = shared([[10, 20, 30]] * 8, powers(8)), []
        for _ in range(6):
            played.next(np.zeros((8, SIZE)), [weights] * 8, class_means=(rows, CLASS_MEANS))
            files.append(played.state["prototypes"].read_bytes())
        return files

    first = course("first", 1, 1)
    assert first == course("again", 1, 99)
    assert first != course("other", 2, 1)
    assert len(set(first)) > 1, "rounds draw anew"


def with_rule(name: str, **settings: Value) -> Manifest:
    return replace(make_manifest(), server_rule=Selection(name, settings))


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (scaffold(uplink={}), r"'variate' and 'variate_change' must be declared together"),
        (fedssc(1, downlink={}), r"'prototypes' and 'class_means' must be declared together"),
        (scaffold(uplink={"variate_change": SPECS}), r"uplink 'variate_change' has the tensors"),
        (fedssc(1, classes=("x", "y")), r"downlink 'prototypes' has the tensors"),
        (fedssc(1, uplink={"class_means": CLASS_MEANS[:1]}), r"uplink 'class_means' has the tensors"),
        (make_manifest(server_rule=FedNova(), training=momentum_of(1.0)), r"momentum is 1\.0"),
        (with_rule("median"), f"server_rule is 'median'; it must be one of {', '.join(SERVER_RULES)}"),
        (with_rule("fedavgm", server_momentum=1.5), "server_momentum is 1.5"),
        (with_rule("fedavgm", speed=2), r"server_rule setting 'speed' \(= 2\) is unknown"),
        (with_rule("fedavgm", damped=2), "damped is 2; it must be true or false"),
    ],
)
def test_a_bundle_that_cannot_be_aggregated_is_rejected_by_name(manifest: Manifest, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        require_consistent(manifest)


def test_a_valid_bundle_is_not_rejected() -> None:
    for manifest in (scaffold(), fedssc(0), make_manifest(server_rule=FedNova())):
        require_consistent(manifest)
