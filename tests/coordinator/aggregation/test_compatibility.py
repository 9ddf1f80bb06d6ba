"""Bundles that could not be aggregated are rejected by name before a run starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.bundle.manifest import Manifest
from moonfed.bundle.target import class_target
from moonfed.coordinator.aggregation.compatibility import require_consistent
from moonfed.errors import InvalidInput
from moonfed.registry import Selection, Value
from moonfed.server_rules import SERVER_RULES
from moonfed.server_rules.fednova import FedNova
from tests.support.aggregation_rounds import (
    CLASS_MEANS,
    SPECS,
    fedssc,
    make_manifest,
    momentum_of,
    scaffold,
)


def with_rule(name: str, **settings: Value) -> Manifest:
    return replace(make_manifest(), server_rule=Selection(name, settings))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (scaffold(uplink={}), r"'variate' and 'variate_change' must be declared together"),
        (fedssc(1, downlink={}), r"'prototypes' and 'class_means' must be declared together"),
        (scaffold(uplink={"variate_change": SPECS}), r"uplink 'variate_change' has the tensors"),
        (fedssc(1, target=class_target(("x", "y"))), r"downlink 'prototypes' has the tensors"),
        (fedssc(1, uplink={"class_means": CLASS_MEANS[:1]}), r"uplink 'class_means' has the tensors"),
        (make_manifest(server_rule=FedNova(), training=momentum_of(1.0)), r"momentum is 1\.0"),
        (
            make_manifest(server_rule=FedNova(), plan=replace(make_manifest().plan, optimiser="adam")),
            "optimiser is 'adam'",
        ),
        (
            make_manifest(server_rule=FedNova(), plan=replace(make_manifest().plan, step_schedule="cosine")),
            "step_schedule is 'cosine'",
        ),
        (with_rule("median"), f"server_rule is 'median'; it must be one of {', '.join(SERVER_RULES)}"),
        (with_rule("fedavgm", server_momentum=1.5), "server_momentum is 1.5"),
        (with_rule("fedavgm", speed=2), r"server_rule setting 'speed' \(= 2\) is unknown"),
        (with_rule("fedavgm", damped=2), "damped is 2"),
    ],
)
def test_a_bundle_that_cannot_be_aggregated_is_rejected_by_name(manifest: Manifest, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        require_consistent(manifest)


def test_a_valid_bundle_is_not_rejected() -> None:
    for manifest in (scaffold(), fedssc(0), make_manifest(server_rule=FedNova())):
        require_consistent(manifest)
