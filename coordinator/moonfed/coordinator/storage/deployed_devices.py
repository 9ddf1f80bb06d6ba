"""Chosen devices and installed releases. Each function is part of the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.deployments.state import Choice, Deployment, DeviceView
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore, insert_or_replace
from moonfed.fleet.target_release import InstalledRelease

_chosen, _installed = tables.deployed_devices.c, tables.installed_releases.c
_OF_DEVICES = sql.select(tables.deployed_devices).where(
    _chosen.device.in_(sql.bindparam("devices", expanding=True)),
)
_INSTALLED_ON = sql.select(tables.installed_releases).where(
    _installed.device.in_(sql.bindparam("devices", expanding=True))
)
_OF_NAME = sql.select(tables.deployed_devices).where(_chosen.name == sql.bindparam("of_name"))
_INSTALLED_OF_NAME = sql.select(tables.installed_releases).where(_installed.name == sql.bindparam("of_name"))
_CHOSEN_BY = sql.select(_chosen.device).where(
    _chosen.name == sql.bindparam("of_name"), _chosen.deployment == sql.bindparam("of_deployment")
)
_MAY_FETCH = (
    sql.select(_chosen.device)
    .join(
        tables.deployments,
        sql.and_(tables.deployments.c.name == _chosen.name, tables.deployments.c.number == _chosen.deployment),
    )
    .join(
        tables.release_blobs,
        sql.and_(
            tables.release_blobs.c.name == tables.deployments.c.name,
            tables.release_blobs.c.version == tables.deployments.c.version,
        ),
    )
    .where(tables.release_blobs.c.sha256 == sql.bindparam("sha256"), _chosen.device == sql.bindparam("of_device"))
    .limit(1)
)
_LOCK = (
    sql.select(_chosen.device)
    .where(_chosen.name == sql.bindparam("of_name"), _chosen.device == sql.bindparam("of_device"))
    .with_for_update()
)
_TABLES = (tables.installed_releases, tables.deployed_devices)  # in the order in which every transaction locks them
DEVICES_AT_ONCE = 500  # in one statement
Deployments = Mapping[str, Mapping[int, Deployment]]  # by name and number
Views = dict[str, dict[str, DeviceView]]  # by name and device


def choose(connection: sql.Connection, deployment: Deployment, devices: Iterable[str]) -> None:
    """Record that a deployment has chosen devices; those chosen already stay as they are."""
    rows = [
        _choice_row(deployment.name, Choice(deployment=deployment.number, device=device))
        for device in sorted(devices)  # in one order, so that replicas do not deadlock
    ]
    insert_or_ignore(connection, tables.deployed_devices, rows)


def chosen_by(connection: sql.Connection, deployment: Deployment) -> set[str]:
    """Return the devices that a deployment has chosen."""
    key = {"of_name": deployment.name, "of_deployment": deployment.number}
    return set(connection.execute(_CHOSEN_BY, key).scalars())


def views_of_devices(connection: sql.Connection, deployments: Deployments, devices: Collection[str]) -> Views:
    """Return the devices' views of all releases that have chosen them."""
    choices: list[sql.RowMapping] = []
    installed: list[sql.RowMapping] = []
    names = sorted(devices)
    for start in range(0, len(names), DEVICES_AT_ONCE):
        some = {"devices": names[start : start + DEVICES_AT_ONCE]}
        choices += connection.execute(_OF_DEVICES, some).mappings()
        installed += connection.execute(_INSTALLED_ON, some).mappings()
    return _views(deployments, choices, installed)


def views_of_name(connection: sql.Connection, deployments: Deployments, name: str) -> dict[str, DeviceView]:
    """Return the views of one release by all devices that it has chosen."""
    key = {"of_name": name}
    choices = connection.execute(_OF_NAME, key).mappings().all()
    return _views(deployments, choices, connection.execute(_INSTALLED_OF_NAME, key).mappings().all()).get(name, {})


def save(connection: sql.Connection, name: str, choices: Iterable[Choice]) -> None:
    """Record changed choices of one release."""
    insert_or_replace(connection, tables.deployed_devices, [_choice_row(name, choice) for choice in choices])


def save_installed(connection: sql.Connection, device: str, releases: Collection[InstalledRelease]) -> None:
    """Record the versions that a device predicts with."""
    rows = [
        {
            "name": release.name,
            "device": device,
            "version": release.version,
            "variant": release.variant,
            "previous": release.previous,
        }
        for release in sorted(releases, key=lambda release: release.name)
    ]
    insert_or_replace(connection, tables.installed_releases, rows)


def installed_on(connection: sql.Connection, device: str) -> dict[str, InstalledRelease]:
    """Return what a device has installed, by name."""
    rows = connection.execute(_INSTALLED_ON, {"devices": [device]}).mappings()
    return {row["name"]: _installed_release(row) for row in rows}


def lock(connection: sql.Connection, name: str, device: str) -> None:
    """Let no other transaction change a device's choices of a release until this one ends."""
    connection.execute(_LOCK, {"of_name": name, "of_device": device})


def may_fetch(connection: sql.Connection, device: str, sha256: str) -> bool:
    """Return True if a blob belongs to a release that was deployed to the device."""
    return connection.execute(_MAY_FETCH, {"sha256": sha256, "of_device": device}).first() is not None


def forget(connection: sql.Connection, device: str) -> None:
    """Delete a device's rows."""
    for table in _TABLES:
        connection.execute(sql.delete(table).where(table.c.device == device))


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Give a device's rows its new name; those of an earlier device of that name are deleted."""
    forget(connection, name)
    for table in _TABLES:
        connection.execute(sql.update(table).where(table.c.device == device).values(device=name))


def _views(deployments: Deployments, choices: Iterable[sql.RowMapping], installed: Iterable[sql.RowMapping]) -> Views:
    by_key = {(row["name"], row["device"]): _installed_release(row) for row in installed}
    grouped: dict[tuple[str, str], list[Choice]] = {}
    for row in choices:
        if row["deployment"] in deployments.get(row["name"], {}):  # not one that was just made
            grouped.setdefault((row["name"], row["device"]), []).append(_choice(row))
    views: Views = {}
    for (name, device), found in sorted(grouped.items()):
        views.setdefault(name, {})[device] = DeviceView(
            deployments=deployments[name],
            choices=tuple(sorted(found, key=lambda choice: -choice.deployment)),
            installed=by_key.get((name, device)) or InstalledRelease(name=name),
        )
    return views


def _choice_row(name: str, choice: Choice) -> dict[str, Any]:
    return {"name": name, **asdict(choice)}


def _choice(row: sql.RowMapping) -> Choice:
    return Choice(**{column: value for column, value in row.items() if column != "name"})


def _installed_release(row: sql.RowMapping) -> InstalledRelease:
    return InstalledRelease(name=row["name"], version=row["version"], variant=row["variant"], previous=row["previous"])
