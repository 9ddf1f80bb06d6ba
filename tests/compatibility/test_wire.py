"""The wire is still the last release's, as `buf breaking` with WIRE_JSON would have it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tests.compatibility.installed_release import Release
from tests.compatibility.wire import DESCRIPTORS, breaking, descriptors


@pytest.fixture(scope="module")
def ours() -> FileDescriptorSet:
    done = subprocess.run([sys.executable, "-c", DESCRIPTORS], capture_output=True, text=True, check=True)
    return descriptors(map(base64.b64decode, json.loads(done.stdout)))


@pytest.fixture
def changed(ours: FileDescriptorSet) -> FileDescriptorSet:
    return FileDescriptorSet.FromString(ours.SerializeToString())


def message(found: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(one for file in found.file for one in file.message_type if one.name == name)


def field(found: FileDescriptorSet, of: str, name: str) -> FieldDescriptorProto:
    return next(one for one in message(found, of).field if one.name == name)


def removed(found: FileDescriptorSet, *, reserved: bool) -> None:
    gone = field(found, "Receipt", "attempt")
    message(found, "Receipt").field.remove(gone)
    if reserved:
        message(found, "Receipt").reserved_range.add(start=gone.number, end=gone.number + 1)


def new_field(found: FileDescriptorSet) -> None:
    message(found, "Receipt").field.add(name="new", number=99, type="TYPE_STRING", label="LABEL_OPTIONAL")


def renamed_package(found: FileDescriptorSet) -> None:
    for file in found.file:
        file.package = "moonfed.v2"


def reused(found: FileDescriptorSet) -> None:
    """Use a number again that a message has reserved."""
    del message(found, "HoldoutScores").reserved_range[:]
    message(found, "HoldoutScores").field.add(name="new", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")


def enum(found: FileDescriptorSet) -> None:
    (outcomes,) = (one for file in found.file for one in file.enum_type if one.name == "ReleaseOutcome")
    outcomes.value[1].name, outcomes.value[2].name = outcomes.value[2].name, outcomes.value[1].name


def method(found: FileDescriptorSet) -> None:
    (fleet,) = (one for file in found.file for one in file.service if one.name == "Fleet")
    fleet.method[0].server_streaming = False


# What is changed, and a word of the line that says so.
CHANGES: dict[Callable[[FileDescriptorSet], object], str] = {
    lambda found: field(found, "Assignment", "round").__setattr__("number", 98): "Assignment.round",
    lambda found: field(found, "Assignment", "round").__setattr__("name", "turn"): "Assignment.round",
    lambda found: field(found, "Assignment", "seed").__setattr__("type", "TYPE_INT64"): "Assignment.seed",
    lambda found: field(found, "Assignment", "run").__setattr__("label", "LABEL_REPEATED"): "Assignment.run",
    lambda found: field(found, "ConnectReply", "welcome").ClearField("oneof_index"): "ConnectReply.welcome",
    lambda found: removed(found, reserved=False): "Receipt.attempt",
    reused: "HoldoutScores: 2",
    enum: "ReleaseOutcome.RELEASE_OUTCOME_ACCEPTED",
    method: "/moonfed.v1.Fleet/Connect",
    renamed_package: "moonfed.v1.Assignment",
}


def test_nothing_changed_its_meaning_since_the_last_release(last: Release, ours: FileDescriptorSet) -> None:
    before = descriptors(map(base64.b64decode, last.python(DESCRIPTORS)))
    assert len(before.file) >= 4
    assert breaking(before, ours) == []


@pytest.mark.parametrize(("change", "word"), CHANGES.items(), ids=CHANGES.values())
def test_a_change_of_meaning_is_found(
    change: Callable[[FileDescriptorSet], object], word: str, ours: FileDescriptorSet, changed: FileDescriptorSet
) -> None:
    change(changed)
    assert [line for line in breaking(ours, changed) if word in line]


@pytest.mark.parametrize("change", [new_field, lambda found: removed(found, reserved=True)])
def test_new_fields_and_reserved_numbers_break_nothing(
    change: Callable[[FileDescriptorSet], object], ours: FileDescriptorSet, changed: FileDescriptorSet
) -> None:
    change(changed)
    assert changed != ours
    assert breaking(ours, changed) == []
