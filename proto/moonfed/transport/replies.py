"""Checks of everything that a coordinator sends: every program receives its messages through `read_reply`.

Whoever controls the coordinator's host chooses its replies. Names of runs, devices and releases become parts of file
names, and text reaches terminals and logs. So names and digests must have their form, and all other text becomes one
printable line each. A reply that is malformed raises Corrupt; the call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from moonfed.blobs.store import DIGEST
from moonfed.errors import Corrupt
from moonfed.printable import printable
from moonfed.validate import NAME, NAME_RULE

SHOWN = 80  # characters of a malformed name in the error
DIGEST_RULE = "64 lower-case hexadecimal digits"

# Fields that hold names or digests, as MESSAGE.FIELD; of a map, ENTRY.key. All others hold text.
OWN_NAMES = frozenset(
    {
        "Assignment.run",
        "DeployedDevice.device",
        "Deployment.name",
        "Device.device",
        "DeviceActivity.run",
        "DeviceResult.run",
        "DeviceScore.device",
        "EligibilityCheck.run",
        "EnrolReply.device",
        "Evaluation.run",
        "EvaluationTask.run",
        "HeldOutScore.test_set",
        "Incident.device",
        "Operator.operator",
        "PrivacyCharge.run",
        "Release.name",
        "Round.run",
        "RoundOutcomes.run",
        "Run.run",
        "RunEnded.run",
        "TargetRelease.name",
    }
)
NAMES = OWN_NAMES | {
    "Assignment.BlobsEntry.key",
    "DeployedDevice.variant",
    "Deployment.operator",
    "Deployment.variant",
    "DeviceEvaluation.run",
    "DeviceEvaluation.waiting",
    "Ineligible.devices",
    "Metric.name",
    "OpenRound.ProgressEntry.key",
    "OpenRound.ReasonsEntry.key",
    "OpenRound.cohort",
    "OpenRound.declined",
    "OpenRound.left",
    "OpenRound.lost",
    "OpenRound.rejected",
    "OpenRound.replacements",
    "OpenRound.reported",
    "Operator.created_by",
    "Receipt.Sha256Entry.key",
    "Receipt.run",
    "Release.VariantsEntry.key",
    "Release.operator",
    "Release.run",
    "Round.counted",
    "Round.missing",
    "RoundOutcomes.OutcomesEntry.key",
    "RunEvent.cohort",
    "RunEvent.counted",
    "RunEvent.device",
    "RunEvent.devices",
    "RunEvent.missing",
    "RunEvent.reused",
    "TargetRelease.variant",
    "Token.device",
    "Token.operator",
}
DIGESTS = frozenset({"Blob.sha256", "HeldOutScore.sha256", "Receipt.Sha256Entry.value", "Resume.OffsetsEntry.key"})
REQUIRED = OWN_NAMES | {"Blob.sha256"}  # a message without it is malformed

Reply = TypeVar("Reply", bound=Message)


def read_reply(parse: Callable[[bytes], Reply], content: bytes) -> Reply:
    """Return a coordinator's message, its text printable; Corrupt if it is malformed."""
    try:
        message = parse(content)
    except DecodeError as error:
        raise Corrupt("the coordinator's reply cannot be read; it is damaged, or another version's") from error
    _check(message)
    return message


def _check(message: Message) -> None:
    """Check a message, and make its text printable in place."""
    for name in _required(message.DESCRIPTOR):
        _text(f"{_kind(message.DESCRIPTOR)}.{name}", getattr(message, name))
    for field, value in message.ListFields():
        entry = field.message_type
        if isinstance(value, Message):
            _check(value)
        elif entry and isinstance(value, Mapping):
            _check_map(_kind(entry), value)
        elif entry:
            for item in value:
                _check(item)
        elif field.type == field.TYPE_STRING:
            _check_text(message, field.name, value)


def _check_text(message: Message, field: str, value: str | MutableSequence[str]) -> None:
    place = f"{_kind(message.DESCRIPTOR)}.{field}"
    if isinstance(value, str):
        setattr(message, field, _text(place, value))
        return
    for number, word in enumerate(value):
        value[number] = _text(place, word)


def _check_map(entry: str, values: Any) -> None:  # noqa: ANN401 - protobuf's maps have no common type
    for key, value in list(values.items()):
        if isinstance(value, Message):  # its keys are names
            _text(f"{entry}.key", key)
            _check(value)
            continue
        del values[key]
        values[_text(f"{entry}.key", key)] = _text(f"{entry}.value", value) if isinstance(value, str) else value


def _text(place: str, value: str) -> str:
    """Return the text of a field as programs may use it; raise Corrupt for anything but a name where one belongs."""
    if place in NAMES:
        form, allowed = NAME, NAME_RULE
    elif place in DIGESTS:
        form, allowed = DIGEST, DIGEST_RULE
    else:
        return printable(value)
    if not form.fullmatch(value):
        shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
        raise Corrupt(
            f"the coordinator's reply is malformed: {place} is {shown!r}; it must be {allowed}",
            field=place,
            value=shown,
            allowed=allowed,
        )
    return value


@cache
def _required(kind: Descriptor) -> tuple[str, ...]:
    return tuple(name for name in kind.fields_by_name if f"{_kind(kind)}.{name}" in REQUIRED)


@cache
def _kind(kind: Descriptor) -> str:
    """Return a message's name without its package."""
    return kind.full_name.removeprefix(f"{kind.file.package}.")
