"""Every reply of a coordinator is checked, whatever its type: names, digests, and text for people."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from moonfed.errors import Corrupt
from moonfed.transport.replies import DIGESTS, NAMES, REQUIRED, read_reply
from moonfed.v1 import blob_pb2, control_pb2, enrolment_pb2, fleet_pb2
from tests.support.malicious_coordinator import BAD_NAMES, SEQUENCES

DIGEST = "ab" * 32
# The words by which the contract calls what is a name, wherever it occurs.
NAMING = {"run", "device", "devices", "operator", "test_set", "variant", "cohort", "waiting", "counted", "missing"}


def read(message: Message) -> Message:
    return read_reply(type(message).FromString, message.SerializeToString())


def kinds(kind: Descriptor, found: dict[str, Descriptor]) -> dict[str, Descriptor]:
    """Return a message's type and the types of its parts, by name."""
    if kind.full_name not in found:
        found[kind.full_name] = kind
        for field in kind.fields:
            if field.message_type:
                kinds(field.message_type, found)
    return found


def places() -> Iterator[str]:
    """Yield all fields of replies that hold text, as MESSAGE.FIELD."""
    found: dict[str, Descriptor] = {}
    for module in (control_pb2, enrolment_pb2, fleet_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                kinds(method.output_type, found)
    for name, kind in found.items():
        for field in kind.fields:
            if field.type == field.TYPE_STRING:
                yield f"{name.removeprefix('moonfed.v1.')}.{field.name}"


def test_every_field_whose_word_is_a_names_is_checked_as_one_and_no_listed_field_is_gone() -> None:
    known = set(places())
    assert known >= NAMES | DIGESTS
    texts = {"Run.waiting", "AuditRecord.name"}
    assert {place for place in known if place.rpartition(".")[2] in NAMING} - texts <= NAMES
    assert {place for place in known if place.rpartition(".")[2] == "sha256"} <= DIGESTS
    assert {"Release.name", "Deployment.name", "TargetRelease.name"} <= REQUIRED
    assert not {place for place in known if place.endswith("name")} - texts - NAMES


def with_name(name: str) -> dict[str, Message]:
    """Return replies that hold a name in every way that fields can."""
    run = control_pb2.Run(run=name)
    return {
        "field": run,
        "list of messages": control_pb2.ListRunsReply(runs=[control_pb2.Run(run="fine"), run]),
        "list of names": control_pb2.Round(run="fine", counted=["cam-1", name]),
        "key of numbers": control_pb2.OpenRound(progress={"cam-1": 0.5, name: 0.5}),
        "key of text": control_pb2.OpenRound(reasons={name: "because"}),
        "key of messages": fleet_pb2.Assignment(run="fine", blobs={name: blob_pb2.Blob(sha256=DIGEST)}),
        "alternative": control_pb2.Evaluation(run="fine", score=control_pb2.HeldOutScore(test_set=name, sha256=DIGEST)),
        "event": control_pb2.RunEvent(device=name),
        "release": control_pb2.ListReleasesReply(releases=[control_pb2.Release(name=name)]),
        "of a session": fleet_pb2.ConnectReply(target=fleet_pb2.TargetRelease(name=name)),
        "enrolment": enrolment_pb2.EnrolReply(device=name),
    }


@pytest.mark.parametrize("place", with_name("x"))
def test_a_malformed_name_is_rejected_wherever_it_is(place: str) -> None:
    assert read(with_name("cam_1.A-b")[place]) == with_name("cam_1.A-b")[place]
    for name in BAD_NAMES:
        with pytest.raises(Corrupt) as caught:
            read(with_name(name)[place])
        assert str(caught.value).isprintable()
        assert "1 to 128 letters, digits" in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        control_pb2.ListReleasesReply(releases=[control_pb2.Release(version=1)]),
        control_pb2.ListRunsReply(runs=[control_pb2.Run()]),
        fleet_pb2.ConnectReply(ended=fleet_pb2.RunEnded()),
        control_pb2.Round(run="fine", counted=[""]),
        control_pb2.Evaluation(run="fine", score=control_pb2.HeldOutScore(sha256=DIGEST)),
    ],
)
def test_a_message_without_its_name_is_rejected(message: Message) -> None:
    with pytest.raises(Corrupt, match="is ''; it must be 1 to 128 letters"):
        read(message)


@pytest.mark.parametrize("digest", ["", "../x", "A" * 64, DIGEST + "0", DIGEST[:-1] + "\n", "\x1b" * 64])
def test_a_malformed_digest_is_rejected(digest: str) -> None:
    for message in (
        control_pb2.Run(run="fine", manifest=blob_pb2.Blob(sha256=digest, size=1)),
        fleet_pb2.Receipt(run="fine", sha256={"model": digest}),
        blob_pb2.Resume(offsets={digest: 1}),
    ):
        with pytest.raises(Corrupt, match="it must be 64 lower-case hexadecimal digits"):
            read(message)


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=list(SEQUENCES))
def test_text_for_people_becomes_one_printable_line(sequence: str) -> None:
    found = read(
        control_pb2.Run(
            run="r",
            waiting=sequence,
            clipped={f"cam{sequence}": 1, "b": 2},
            initial_metrics={sequence: 1.0},
            ineligible=[control_pb2.Ineligible(reason=sequence, devices=["cam-1"])],
        )
    )
    assert isinstance(found, control_pb2.Run)
    sentences = [found.waiting, found.ineligible[0].reason, *found.initial_metrics, *found.clipped]
    assert all(text.isprintable() for text in sentences)
    assert found.clipped["b"] == 2
    assert list(found.initial_metrics.values()) == [1.0]
    assert len(found.clipped) == 2
    release = read(control_pb2.Release(name="r", target=control_pb2.TargetSpec(names=["Grüße, 世界", sequence])))
    assert isinstance(release, control_pb2.Release)
    assert release.target.names[0] == "Grüße, 世界"
    assert release.target.names[1].isprintable()


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x05abc", b"\x0a\x02\xff\xfe"])
def test_what_is_no_message_is_one_sentence(content: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        read_reply(control_pb2.Run.FromString, content)
