"""Targets, installed releases and reports survive the network; wrong ones are rejected by field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.errors import InvalidInput
from moonfed.fleet.messages import (
    read_installed,
    read_release_report,
    read_target,
    write_installed,
    write_release_report,
    write_target,
)
from moonfed.fleet.target_release import OUTCOMES, InstalledRelease, ReleaseReport, TargetRelease
from moonfed.v1 import fleet_pb2
from tests.support.releases import ref

TARGET = TargetRelease(
    name="digits",
    deployment=3,
    version=2,
    variant="int8",
    manifest=ref("manifest"),
    signature=ref("signature"),
    max_drop=1.5,
    roll_back=True,
)
NONE = TargetRelease(name="digits", deployment=3)
INSTALLED = InstalledRelease(name="digits", version=2, variant="float32", previous=1, deployment=3)
REPORT = ReleaseReport(
    device="cam-1",
    name="digits",
    deployment=3,
    version=2,
    outcome="declined",
    installed=INSTALLED,
    reason="0.5 is less than 0.9",
    score=0.0,
    current_score=0.9,
    samples=20,
    fingerprint="f",
)


@pytest.mark.parametrize("target", [TARGET, NONE])
def test_a_target_survives_the_network(target: TargetRelease) -> None:
    assert read_target(write_target(target)) == target


def test_a_target_is_named_in_logs() -> None:
    assert (str(TARGET), str(NONE)) == ("version 2 of model digits", "removal of model digits")


@pytest.mark.parametrize("installed", [INSTALLED, InstalledRelease(name="digits")])
def test_an_inventory_survives_the_network(installed: InstalledRelease) -> None:
    assert read_installed(write_installed(installed)) == installed


@pytest.mark.parametrize(
    "report", [REPORT, replace(REPORT, score=None, current_score=None, samples=0), replace(REPORT, score=55.1)]
)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_report_survives_the_network(report: ReleaseReport, outcome: str) -> None:
    sent = replace(report, outcome=outcome)  # type: ignore[arg-type]
    message = write_release_report(sent)
    assert read_release_report("cam-1", message) == sent
    name = fleet_pb2.ReleaseOutcome.Name(message.outcome)
    assert name == f"RELEASE_OUTCOME_{outcome.upper().replace('-', '_')}"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "../x"}, "name is '../x'"),
        ({"variant": ""}, "variant is ''"),
        ({"manifest": None}, "manifest is missing"),
        ({"signature": None}, "signature is missing"),
        ({"manifest": BlobRef("0" * 64, 1 << 30)}, "manifest has 1073741824 bytes; it must be at most 1048576"),
        ({"max_drop": float("nan")}, "max_drop is nan"),
        ({"max_drop": -1.0}, "max_drop is -1.0"),
    ],
)
def test_an_invalid_target_is_rejected_by_field(fields: dict[str, object], sentence: str) -> None:
    message = write_target(TARGET)
    for field, value in fields.items():
        if value is None:
            message.ClearField(field)  # type: ignore[arg-type]
        elif isinstance(value, BlobRef):
            getattr(message, field).sha256, getattr(message, field).size = value.sha256, value.size
        else:
            setattr(message, field, value)
    with pytest.raises(InvalidInput, match=sentence):
        read_target(message)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"outcome": 0}, "outcome is 0"),
        ({"outcome": 6}, "outcome is 6"),
        ({"score": -0.5}, "score is -0.5"),
        ({"score": float("inf")}, "score is inf"),
        ({"current_score": float("nan")}, "current_score is nan"),
        ({"name": "faces"}, "installed names 'digits'; it must be 'faces'"),
        ({"version": 2**32 - 1}, "version is 4294967295"),
    ],
)
def test_an_invalid_report_is_rejected_by_field(fields: dict[str, object], sentence: str) -> None:
    message = write_release_report(REPORT)
    for field, value in fields.items():
        setattr(message, field, value)
    with pytest.raises(InvalidInput, match=sentence):
        read_release_report("cam-1", message)
