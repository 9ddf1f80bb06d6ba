"""Releases: versions of named models, with references to all of their files."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MANIFEST_FILE, MODEL
from moonfed.coordinator.records import ReleaseRecord
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.models.release_manifest import OPTIONAL_FILES, WEIGHTS_FILE, ReleaseManifest

_columns = tables.releases.c
_of_name = _columns.name == sql.bindparam("of_name")
_ALL = sql.select(tables.releases).order_by(_columns.name, _columns.version)
_OF_NAME = _ALL.where(_of_name)
_ONE = sql.select(tables.releases).where(_of_name, _columns.version == sql.bindparam("of_version"))
_SIGNED = sql.select(
    _columns.name,
    _columns.version,
    _columns.manifest_sha256,
    _columns.manifest_size,
    _columns.signature_sha256,
    _columns.signature_size,
)
_NEWEST = sql.select(tables.releases).where(_of_name).order_by(_columns.version.desc()).limit(1)


class Releases:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def add(self, record: ReleaseRecord) -> None:
        """Record the next version of a name; recording the same one again changes nothing.

        Raises AlreadyExists for any other version than the next, InvalidInput for another input or other classes than
        those of the version before, or for other weights or another bundle than the run's.
        """
        manifest = record.manifest
        with self._transactions.write() as connection:
            if _is_recorded(connection, record):
                return
            newest = _newest(connection, manifest.name)
            _require_next(manifest, newest.manifest if newest else None)
            _require_of_run(connection, manifest)
            try:
                connection.execute(sql.insert(tables.releases).values(_row(record)))
            except sql.exc.IntegrityError as error:  # by another operator, at the same time
                raise _not_next(manifest, manifest.version + 1) from error
            connection.execute(sql.insert(tables.release_blobs), _blob_rows(record))

    def all(self, name: str = "") -> list[ReleaseRecord]:
        """Return all releases, or those of one name, by name and version."""
        with self._transactions.read() as connection:
            rows = connection.execute(_OF_NAME, {"of_name": name}) if name else connection.execute(_ALL)
            return [_record(row) for row in rows.mappings()]

    def one(self, name: str, version: int = 0) -> ReleaseRecord:
        """Return one version of a name, or its newest; raises NotFound."""
        with self._transactions.read() as connection:
            return one(connection, name, version)


def one(connection: sql.Connection, name: str, version: int = 0) -> ReleaseRecord:
    """Return one version of a name, or its newest, within the caller's transaction; raises NotFound."""
    newest = _newest(connection, name)
    if newest is None:
        raise NotFound(f"there is no release {name!r}", field="release", value=name)
    if version in (0, newest.manifest.version):
        return newest
    row = connection.execute(_ONE, {"of_name": name, "of_version": version}).mappings().first()
    if row is None:
        raise NotFound(
            f"release {name!r} has no version {version}; the newest is {newest.manifest.version}",
            field="release",
            value=name,
        )
    return _record(row)


def signed_manifests(connection: sql.Connection) -> Mapping[tuple[str, int], tuple[BlobRef, BlobRef]]:
    """Return the manifest and signature of every release, by name and version, within the caller's transaction."""
    return {
        (row.name, row.version): (
            BlobRef(row.manifest_sha256, row.manifest_size),
            BlobRef(row.signature_sha256, row.signature_size),
        )
        for row in connection.execute(_SIGNED)
    }


def _newest(connection: sql.Connection, name: str) -> ReleaseRecord | None:
    row = connection.execute(_NEWEST, {"of_name": name}).mappings().first()
    return None if row is None else _record(row)


def _is_recorded(connection: sql.Connection, record: ReleaseRecord) -> bool:
    key = {"of_name": record.manifest.name, "of_version": record.manifest.version}
    row = connection.execute(_ONE, key).mappings().first()
    return row is not None and row["manifest_sha256"] == record.ref.sha256


def _require_next(manifest: ReleaseManifest, before: ReleaseManifest | None) -> None:
    following = before.version + 1 if before else 1
    if manifest.version != following:
        raise _not_next(manifest, following)
    if before and manifest.input != before.input:
        raise InvalidInput(
            f"input is {_input(manifest)}; it must be {_input(before)}, as in version {before.version} of "
            f"{manifest.name!r}; give the release another name",
            field="input",
            value=_input(manifest),
            allowed=_input(before),
        )
    if before and manifest.target.unscaled != before.target.unscaled:
        value, allowed = _target(manifest), _target(before)
        raise InvalidInput(
            f"{manifest.target.noun} are {value}; they must be {allowed}, as in version {before.version} of "
            f"{manifest.name!r}; give the release another name",
            field=manifest.target.noun,
            value=value,
            allowed=allowed,
        )


def _require_of_run(connection: sql.Connection, manifest: ReleaseManifest) -> None:
    """Raise unless the weights and the plan are those of the run and round that the manifest names."""
    weights, bundle = manifest.plan[WEIGHTS_FILE], manifest.plan[MANIFEST_FILE]
    of_bundle = references.by_round(connection, manifest.run, tables.BUNDLE, tables.BUNDLE).get(tables.BUNDLE, {})
    if not of_bundle:
        raise NotFound(f"there is no run {manifest.run!r}", field="run", value=manifest.run)
    of_round = references.by_round(connection, manifest.run, manifest.round, manifest.round).get(manifest.round, {})
    if MODEL not in of_round:
        raise NotFound(
            f"run {manifest.run!r} has no global model of round {manifest.round}, or it was deleted",
            field="run",
            value=manifest.run,
        )
    if weights != of_round[MODEL]:
        raise InvalidInput(
            f"weights of the release are {weights.sha256[:12]}; they must be {of_round[MODEL].sha256[:12]}, those of "
            f"round {manifest.round} of run {manifest.run!r}",
            field="weights",
            value=weights.sha256[:12],
        )
    for name in OPTIONAL_FILES:
        if name in manifest.plan and manifest.plan[name] != of_bundle.get(name):
            raise InvalidInput(
                f"{name} of the release is {manifest.plan[name].sha256[:12]}, which is no file of run {manifest.run!r}",
                field=name,
                value=manifest.plan[name].sha256[:12],
            )
    own = of_bundle[MANIFEST_FILE]
    if bundle != own:
        raise InvalidInput(
            f"bundle of the release is {bundle.sha256[:12]}; it must be {own.sha256[:12]}, that of run "
            f"{manifest.run!r}",
            field="bundle",
            value=bundle.sha256[:12],
        )


def _not_next(manifest: ReleaseManifest, following: int) -> AlreadyExists:
    return AlreadyExists(
        field="version", value=manifest.version, allowed=f"{following}, the next of release {manifest.name!r}"
    )


def _input(manifest: ReleaseManifest) -> str:
    return f"{manifest.input.kind} {'x'.join(map(str, manifest.input.shape))}"


def _target(manifest: ReleaseManifest) -> str:
    target = manifest.target
    shape = f" of shape {'x'.join(map(str, target.shape))}" if len(target.shape) > 1 else ""
    return (", ".join(target.names_with_units) or target.describe()) + shape


def _row(record: ReleaseRecord) -> dict[str, object]:
    return {
        "name": record.manifest.name,
        "version": record.manifest.version,
        "created": record.created,
        "operator": record.operator,
        "manifest_sha256": record.ref.sha256,
        "manifest_size": record.ref.size,
        "signature_sha256": record.signature.sha256,
        "signature_size": record.signature.size,
        "content": record.manifest.to_bytes().decode(),
    }


def _blob_rows(record: ReleaseRecord) -> list[dict[str, object]]:
    key = {"name": record.manifest.name, "version": record.manifest.version}
    refs = {*record.manifest.blobs, record.ref, record.signature}
    return [{**key, "sha256": ref.sha256, "size": ref.size} for ref in sorted(refs, key=lambda ref: ref.sha256)]


def _record(row: sql.RowMapping) -> ReleaseRecord:
    return ReleaseRecord(
        manifest=ReleaseManifest.from_bytes(row["content"].encode()),
        ref=BlobRef(row["manifest_sha256"], row["manifest_size"]),
        signature=BlobRef(row["signature_sha256"], row["signature_size"]),
        created=row["created"],
        operator=row["operator"],
    )
