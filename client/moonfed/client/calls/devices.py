"""Calls about devices and join tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from moonfed.client.calls.steps import Steps, ask, ask_all
from moonfed.client.convert import devices as convert
from moonfed.client.convert.times import moment
from moonfed.client.records.devices import Device, NewToken, Token
from moonfed.errors import InvalidInput
from moonfed.labels import check_labels
from moonfed.signing.key_files import default_directory, ensure_keys, read_trust
from moonfed.transport.join_token import parse_token
from moonfed.v1 import control_pb2

HOUR = 3600


def devices(labels: Mapping[str, str], *, online: bool, ineligible: str) -> Steps[list[Device]]:
    """List devices, sorted by name."""
    request = control_pb2.ListDevicesRequest(labels=labels, online=online, ineligible=ineligible)
    return [convert.device(message) for message in (yield from ask_all(control_pb2.Device, "ListDevices", request))]


def device(name: str) -> Steps[Device]:
    """Return one device."""
    request = control_pb2.GetDeviceRequest(device=name)
    return convert.device((yield from ask(control_pb2.Device, "GetDevice", request)))


def revoke(name: str) -> Steps[Device]:
    """Reject a device's certificates."""
    request = control_pb2.RevokeDeviceRequest(device=name)
    return convert.device((yield from ask(control_pb2.Device, "RevokeDevice", request)))


def remove(name: str) -> Steps[None]:
    """Forget a device."""
    request = control_pb2.RemoveDeviceRequest(device=name)
    yield from ask(control_pb2.RemoveDeviceReply, "RemoveDevice", request, attempts=1)


def rename(name: str, new_name: str) -> Steps[Device]:
    """Rename a device."""
    request = control_pb2.RenameDeviceRequest(device=name, name=new_name)
    return convert.device((yield from ask(control_pb2.Device, "RenameDevice", request, attempts=1)))


def label(name: str, labels: Mapping[str, str], removed: Iterable[str]) -> Steps[Device]:
    """Set and remove operators' labels of a device."""
    check_labels(labels)
    request = control_pb2.LabelDeviceRequest(device=name, labels=labels, removed=list(removed))
    if not request.labels and not request.removed:
        raise InvalidInput("labels are missing; give some to set, or names to remove")
    return convert.device((yield from ask(control_pb2.Device, "LabelDevice", request)))


def create_token(uses: int, valid_hours: float, device: str, trust: Path | None) -> Steps[NewToken]:
    """Create a join token with a trust file in it, which is created for a user who has none."""
    chain = read_trust(trust) if trust else ensure_keys(default_directory(), lambda _: None)
    request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=valid_hours * HOUR, device=device)
    reply = yield from ask(control_pb2.CreateTokenReply, "CreateToken", request)
    chain.verify()
    text = str(replace(parse_token(reply.token), trust=chain))
    return NewToken(token=text, id=reply.id, expires=moment(reply.expires))


def tokens() -> Steps[list[Token]]:
    """List the join tokens, oldest first."""
    reply = yield from ask(control_pb2.ListTokensReply, "ListTokens", control_pb2.ListTokensRequest())
    return [convert.token(message) for message in reply.tokens]


def revoke_token(id_: str) -> Steps[Token]:
    """Revoke a join token."""
    request = control_pb2.RevokeTokenRequest(id=id_)
    return convert.token((yield from ask(control_pb2.Token, "RevokeToken", request)))
