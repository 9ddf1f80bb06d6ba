"""The registry of devices, with their certificates, and of join tokens."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sql

from moonfed.control.devices import Device, Token
from moonfed.coordinator.deployments.selection import Candidate, matching
from moonfed.coordinator.storage import (
    certificates,
    deployed_devices,
    device_outcomes,
    eligibility,
    evaluations,
    join_tokens,
    participants,
)
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.coordinator.storage.registry_view import count_change
from moonfed.errors import AlreadyExists, NotFound, Untrusted, WrongState
from moonfed.labels import check_labels
from moonfed.transport.identity import Certificate

_columns = tables.devices.c
_of_device = _columns.device == sql.bindparam("of_device")
_CANDIDATES = sql.select(_columns.device, _columns.reported_labels, _columns.labels).where(_columns.revoked == 0)
_ONE = sql.select(tables.devices).where(_of_device)
_LOCKED = _ONE.with_for_update()
_CHANGE = sql.update(tables.devices).where(_of_device)
_REVOKE = _CHANGE.where(_columns.revoked == 0)
_DELETE = sql.delete(tables.devices).where(_of_device)
_AUTHORITY = 0x6D6F6F61  # a lock of the server's: two coordinators may start at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate that was signed and is valid once it is recorded."""

    serial: str
    key_sha256: str  # of its public key
    expires: float


class DeviceRegistry:
    """Devices and join tokens; every method is one transaction and returns when it is durable."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def require_authority(self, sha256: str) -> None:
        """Record the authority that all coordinators on a shared database use; WrongState if it is another one."""
        if not self._transactions.shared:
            return
        with self._transactions.write() as connection:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_AUTHORITY)))
            known = connection.execute(sql.select(tables.authority.c.sha256)).scalar()
            if known is None:
                connection.execute(sql.insert(tables.authority).values(sha256=sha256))
        if known not in (None, sha256):
            raise WrongState(
                "this state directory's authority is not the one that the other coordinators on this database have: "
                "put a copy of their authority/ in its place and start again"
            )

    # Reading

    def devices(self) -> list[Device]:
        """Return all known devices, sorted by name."""
        with self._transactions.read() as connection:
            found = connection.execute(sql.select(tables.devices).order_by(_columns.device))
            return [row_mapping.device(row) for row in found.mappings()]

    def device(self, device: str) -> Device:
        """Return one device with its certificates; raises NotFound."""
        with self._transactions.read() as connection:
            return _record(connection, device)

    def having(self, labels: Mapping[str, str], *, trusted: bool) -> int:
        """Return the number of devices, without revoked ones, with these labels; `trusted`: set by operators."""
        with self._transactions.read() as connection:
            return len(matching(labels, candidates_for_selection(connection), trusted=trusted))

    def count(self) -> int:
        """Return the number of known devices, without revoked ones."""
        known, revoked = self.totals()
        return known - revoked

    def totals(self) -> tuple[int, int]:
        """Return the number of known devices, and of those that operators revoked."""
        revoked = sql.func.coalesce(sql.func.sum(sql.case((_columns.revoked > 0, 1), else_=0)), 0)
        with self._transactions.read() as connection:
            known, revoked_ones = connection.execute(sql.select(sql.func.count(), revoked)).one()
        return int(known), int(revoked_ones)

    def by_release(self) -> dict[str, int]:
        """Return the number of devices that last reported each release of moonfed; "" of those that never connected."""
        counted = sql.select(_columns.release, sql.func.count()).group_by(_columns.release)
        with self._transactions.read() as connection:
            return {str(release): int(number) for release, number in connection.execute(counted)}

    # Enrolment

    def enrol(self, device: str, issued: Issued, secret_sha256: str) -> bool:
        """Record a device's certificate and consume one use of a token; False if the token has none left.

        A device that repeats the request with its key and its last token does not consume a use, since a reply may be
        lost. With a token for this device, the certificate replaces all former ones, whatever their keys.
        Raises AlreadyExists if the name belongs to another key, Untrusted if the device or the token was revoked.
        """
        now = time.time()
        changes = {"certificate_expires": issued.expires, "secret_sha256": secret_sha256, "revoked": 0.0}
        changes |= {"public_key_sha256": issued.key_sha256}
        with self._transactions.write() as connection:
            # One enrolment at a time, of those with this token.
            token = join_tokens.find(connection, secret_sha256, lock=True)
            held = _locked(connection, device)
            asks_again = held is not None and (held["public_key_sha256"], held["secret_sha256"]) == (
                issued.key_sha256,
                secret_sha256,
            )
            returns = token is not None and token.device == device and not asks_again
            if token and token.revoked:
                raise Untrusted(
                    "the join token was revoked by an operator; ask for a new one", field="join token", value="revoked"
                )
            if held:
                _require_owner(held, issued, returns=returns)
            if not asks_again and not join_tokens.use(connection, secret_sha256):
                return False
            if held and returns:
                certificates.reject(connection, device, "replaced")
                count_change(connection)
            if held:
                connection.execute(_CHANGE, {"of_device": device, **changes})
            else:
                row = {"device": device, "enrolled": now, "last_seen": now, "platform": {}, "labels": {}, **changes}
                try:
                    connection.execute(sql.insert(tables.devices).values(row))
                except sql.exc.IntegrityError as error:  # with another token, at the same time
                    raise _taken(device) from error
                # A round may have opened, or a release may have been deployed, while a former one was removed.
                device_outcomes.forget(connection, device)
                participants.forget(connection, device)
                deployed_devices.forget(connection, device)
            certificates.add(connection, issued.serial, device, issued.expires)
        return True

    def holder(self, certificate: Certificate) -> str:
        """Return the present name of the device that holds a certificate; raises Untrusted if it may not be renewed."""
        with self._transactions.read() as connection:
            return _holder(connection, certificate)

    def renewed(self, device: str, certificate: Certificate, issued: Issued) -> None:
        """Record the successor of a certificate; raises Untrusted if that was rejected meanwhile."""
        changes = {"certificate_expires": issued.expires, "public_key_sha256": issued.key_sha256}
        with self._transactions.write() as connection:
            held = _locked(connection, device)
            if _holder(connection, certificate) != device:
                raise WrongState(
                    f"device {certificate.name!r} has just been renamed; try again",
                    field="device",
                    value=certificate.name,
                )
            if held and held["revoked"]:
                raise Untrusted(f"device {device!r} was revoked by an operator", field="device", value=device)
            connection.execute(_CHANGE, {"of_device": device, **changes})
            certificates.add(connection, issued.serial, device, issued.expires)

    def seen(
        self,
        device: str,
        platform: Mapping[str, str] | None = None,
        certificate: Certificate | None = None,
        *,
        release: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Record that a device has called; `labels`: its own.

        One that describes its platform but is unknown becomes known, with its certificate: it never enrolled (no TLS),
        or did so after the backup that was restored. If the device is revoked, a certificate not yet on record is
        rejected from now on.
        """
        now = time.time()
        changes: dict[str, Any] = {"last_seen": now}
        if platform is not None:
            changes |= {"platform": dict(platform), "release": release, "reported_labels": dict(labels or {})}
        new = {"device": device, "enrolled": now, "certificate_expires": 0.0, "platform": {}, "labels": {}}
        new |= {"public_key_sha256": "", "secret_sha256": "", "revoked": 0.0}
        with self._transactions.write() as connection:
            known = connection.execute(_CHANGE, {"of_device": device, **changes})
            if platform is None or (certificate and certificates.find(connection, certificate.serial)):
                return  # a certificate without its device: that was removed or renamed a moment ago
            if not known.rowcount:
                insert_or_ignore(connection, tables.devices, [{**new, **changes}])
            if certificate:
                certificates.add(connection, certificate.serial, device, certificate.expires)
                if _require(connection, device)["revoked"]:
                    certificates.reject(connection, device, "revoked")
                    count_change(connection)

    # Administration

    def revoke(self, device: str) -> Device:
        """Reject all certificates of a device, which returns only with a token for it; raises NotFound."""
        with self._transactions.write() as connection:
            _require(connection, device)
            certificates.reject(connection, device, "revoked")
            connection.execute(_REVOKE, {"of_device": device, "revoked": time.time()})
            count_change(connection)
            return _record(connection, device)

    def remove(self, device: str) -> None:
        """Forget a device, and reject its certificates; rounds keep its name. Raises NotFound."""
        with self._transactions.write() as connection:
            join_tokens.revoke_of(connection, device)
            _require(connection, device)
            certificates.reject(connection, device, "removed")
            eligibility.forget(connection, device)
            device_outcomes.forget(connection, device)
            participants.forget(connection, device)
            deployed_devices.forget(connection, device)
            connection.execute(_DELETE, {"of_device": device})
            count_change(connection)

    def rename(self, device: str, name: str) -> Device:
        """Rename a device, which renews its certificate under the new name when it calls next.

        It participates in its runs under that name. Raises NotFound, or AlreadyExists if the name is taken.
        """
        with self._transactions.write() as connection:
            join_tokens.rename(connection, device, name)
            _require(connection, device)
            if _locked(connection, name):
                raise _taken(name)
            certificates.rename(connection, device, name)
            try:
                connection.execute(_CHANGE, {"of_device": device, "device": name})
            except sql.exc.IntegrityError as error:  # a device with that name, at the same time
                raise _taken(name) from error
            device_outcomes.rename(connection, device, name)
            participants.rename(connection, device, name)
            evaluations.rename(connection, device, name)
            deployed_devices.rename(connection, device, name)
            eligibility.forget(connection, device)
            count_change(connection)
            return _record(connection, name)

    def label(self, device: str, labels: Mapping[str, str], removed: Collection[str] = ()) -> Device:
        """Set and remove operators' labels of a device; raises NotFound, or InvalidInput for too many labels."""
        with self._transactions.write() as connection:
            held = _require(connection, device)
            kept = {label: value for label, value in held["labels"].items() if label not in removed}
            changed = {**kept, **labels}
            check_labels(changed)
            connection.execute(_CHANGE, {"of_device": device, "labels": changed})
            count_change(connection)
            return _record(connection, device)

    # Join tokens

    def add_token(self, secret_sha256: str, token: Token) -> None:
        """Record a new join token; raises NotFound if it is for a device that is unknown."""
        with self._transactions.write() as connection:
            if token.device:
                _require(connection, token.device)
            join_tokens.add(connection, secret_sha256, token)

    def token(self, secret_sha256: str) -> Token | None:
        """Return a join token; None if it is unknown."""
        with self._transactions.read() as connection:
            return join_tokens.find(connection, secret_sha256)

    def tokens(self) -> list[Token]:
        """Return all join tokens, oldest first."""
        with self._transactions.read() as connection:
            return join_tokens.all_tokens(connection)

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a join token; the devices that enrolled with it stay. Raises NotFound."""
        with self._transactions.write() as connection:
            return join_tokens.revoke(connection, token_id)


def _locked(connection: sql.Connection, device: str) -> sql.RowMapping | None:
    """Return a device's row, locked until the end of the transaction; None if it is unknown."""
    return connection.execute(_LOCKED, {"of_device": device}).mappings().first()


def _require(connection: sql.Connection, device: str) -> sql.RowMapping:
    held = _locked(connection, device)
    if held is None:
        raise NotFound(f"there is no device {device!r}", field="device", value=device)
    return held


def candidates_for_selection(connection: sql.Connection) -> list[Candidate]:
    """Return all devices that were not revoked."""
    return [
        Candidate(device=row.device, labels=row.reported_labels, operator_labels=row.labels)
        for row in connection.execute(_CANDIDATES)
    ]


def _record(connection: sql.Connection, device: str) -> Device:
    row = connection.execute(_ONE, {"of_device": device}).mappings().first()
    if row is None:
        raise NotFound(f"there is no device {device!r}", field="device", value=device)
    return replace(row_mapping.device(row), certificates=certificates.issued_to(connection, device))


def _holder(connection: sql.Connection, certificate: Certificate) -> str:
    device, reason = certificates.find(connection, certificate.serial) or (certificate.name, "")
    if reason not in ("", "renamed"):
        raise Untrusted(
            f"the certificate {certificate.serial} of device {device!r} was {reason}; it cannot be renewed",
            field="certificate",
            value=str(reason),
        )
    return device


def _require_owner(held: sql.RowMapping, issued: Issued, *, returns: bool) -> None:
    """Raise unless a known device may enrol; `returns`: with a token for it."""
    device, same_key = held["device"], held["public_key_sha256"] == issued.key_sha256
    if not same_key and not returns:
        raise _taken(device)
    if held["revoked"] and not returns:
        raise Untrusted(
            f"device {device!r} was revoked by an operator; it may not enrol again, "
            "except with a join token that an operator creates for it",
            field="device",
            value=device,
        )
    if held["revoked"] and same_key:
        raise Untrusted(
            f"the key of device {device!r} was revoked; enrol with a new key, in an empty state directory",
            field="key of device",
            value=device,
        )


def _taken(device: str) -> AlreadyExists:
    return AlreadyExists(
        f"there is already a device {device!r}; give another name, or ask the operator for a join token for this "
        "device",
        field="device",
        value=device,
    )
