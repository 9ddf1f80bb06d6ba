"""Deployments of releases: their changes by operators, the devices that they choose, and these devices' targets.

All replicas compute from the same rows, and poll the version for changes that concern their devices.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.control import releases as shown
from moonfed.control.codec import from_values
from moonfed.coordinator.deployments import selection, transitions
from moonfed.coordinator.deployments.selection import Candidate
from moonfed.coordinator.deployments.state import Deployment, DeviceView, differs
from moonfed.coordinator.storage import deployed_devices, releases
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.device_registry import candidates_for_selection
from moonfed.coordinator.storage.outbox import Outbox, release_rolled_back
from moonfed.errors import NotFound, WrongState
from moonfed.fleet.target_release import InstalledRelease, ReleaseReport, TargetRelease
from moonfed.formatting import moment_or_none

_columns, _devices = tables.deployments.c, tables.devices.c
_ALL = sql.select(tables.deployments).order_by(_columns.name, _columns.number)
_OF_NAME = _ALL.where(_columns.name == sql.bindparam("of_name"))
_VERSION = sql.select(tables.deployments_version.c.version)
# Every name has a version 1, whose row is the lock of the name's deployments.
_LOCK = (
    sql.select(tables.releases.c.version)
    .where(tables.releases.c.name == sql.bindparam("of_name"), tables.releases.c.version == 1)
    .with_for_update()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A device that has just connected."""

    device: str
    installed: tuple[InstalledRelease, ...]  # by its own account
    fingerprint: str


@dataclass(frozen=True, slots=True)
class DeviceTarget:
    """A device's target, and whether the device has it."""

    target: TargetRelease
    installed: bool


class Deployments:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions, outbox: Outbox) -> None:
        self._transactions, self._outbox = transactions, outbox

    # Operators

    def deploy(self, deployment: Deployment, *, allow_empty: bool = False) -> shown.Deployment:
        """Record a deployment, which gets the next number of its name, and choose its devices.

        Raises NotFound for a version, InvalidInput for a variant that the release lacks, or if no device matches.
        """
        with self._transactions.write() as connection:
            release = releases.one(connection, deployment.name, deployment.version)
            release.manifest.files(deployment.variant)
            known = _locked(connection, deployment.name)
            new = replace(deployment, number=max(known, default=0) + 1, created=time.time())
            connection.execute(sql.insert(tables.deployments).values(_row(new)))
            return _require_devices(_choose_and_view(connection, new), allow_empty=allow_empty)

    def widen(self, name: str, percent: float, *, allow_empty: bool = False) -> shown.Deployment:
        """Let the newest deployment of a release choose more devices; raises NotFound, WrongState or InvalidInput."""
        with self._transactions.write() as connection:
            known = _require_deployed(_locked(connection, name), name)
            view = _update(connection, transitions.widen(known[max(known)], percent))
            return _require_devices(view, allow_empty=allow_empty)

    def pause(self, name: str) -> shown.Deployment:
        """Pause the newest deployment of a release; raises NotFound or WrongState."""
        return self._change(name, transitions.pause)

    def resume(self, name: str) -> shown.Deployment:
        """Resume the newest deployment of a release; raises NotFound or WrongState."""
        return self._change(name, transitions.resume)

    def roll_back(self, name: str, number: int = 0) -> shown.Deployment:
        """Roll back the newest deployment of a release that is not rolled back yet.

        A repeated call with its `number` changes nothing. Raises NotFound, or WrongState if all were rolled back or
        `number` is not the newest one's.
        """
        with self._transactions.write() as connection:
            known = _require_deployed(_locked(connection, name), name)
            standing = [deployment for deployment in known.values() if deployment.status != "rolled-back"]
            if number and number in known and known[number].status == "rolled-back":
                return _views(connection, name, [known[number]])[0]
            if not standing:
                raise WrongState(f"all deployments of {name!r} were rolled back", field="release", value=name)
            newest = standing[-1]
            if number not in (0, newest.number):
                raise WrongState(
                    f"deployment {number} of {name!r} is not the newest, which is {newest.number} of version "
                    f"{newest.version}; nothing was changed",
                    field="deployment",
                    value=number,
                )
            self._outbox.add(connection, release_rolled_back(newest))
            return _update(connection, transitions.roll_back(newest))

    def roll_back_to(self, name: str, version: int) -> shown.Deployment:
        """Roll back all deployments that are newer than the newest one of a version; return the oldest of them.

        If there is none, nothing changes, and that one is returned. Raises NotFound, or WrongState if no deployment of
        the version stands.
        """
        with self._transactions.write() as connection:
            known = _require_deployed(_locked(connection, name), name)
            kept, *newer = transitions.from_version(version, known.values())
            for deployment in newer:
                self._outbox.add(connection, release_rolled_back(deployment))
                _update(connection, transitions.roll_back(deployment))
            return _views(connection, name, [transitions.roll_back(newer[0]) if newer else kept])[0]

    def _change(self, name: str, change: Callable[[Deployment], Deployment]) -> shown.Deployment:
        with self._transactions.write() as connection:
            known = _require_deployed(_locked(connection, name), name)
            return _update(connection, change(known[max(known)]))

    def views(self, name: str = "") -> list[shown.Deployment]:
        """Return all deployments of a release, or the newest of each; raises NotFound for an unknown name."""
        with self._transactions.read() as connection:
            if name:
                releases.one(connection, name)
                return _views(connection, name, _of_name(connection, name).values())
            newest = {each: max(known.values(), key=lambda one: one.number) for each, known in _all(connection).items()}
            return [view for each, deployment in newest.items() for view in _views(connection, each, [deployment])]

    def devices(self, name: str, number: int = 0) -> list[shown.DeployedDevice]:
        """Return the devices chosen by one deployment of a release, or by any of them, by name; raises NotFound."""
        with self._transactions.read() as connection:
            releases.one(connection, name)
            known = _of_name(connection, name)
            if number and number not in known:
                raise NotFound(f"release {name!r} has no deployment {number}", field="release", value=name)
            views = _known_views(connection, name)
            return [found for view in views.values() if (found := _deployed(view, number))]

    # Choices

    def version(self) -> int:
        """Return a number that increases when targets may have changed."""
        with self._transactions.read() as connection:
            return int(connection.execute(_VERSION).scalar_one())

    def choose(self) -> bool:
        """Choose devices that have become known or got labels since; return False if there are none."""
        with self._transactions.read() as connection:
            deployed = _all(connection)
            candidates = candidates_for_selection(connection) if deployed else []
            names = [
                name
                for name, known in deployed.items()
                if any(_missing(connection, each, candidates) for each in selection.choosing(known.values()))
            ]
        for name in names:
            with self._transactions.write() as connection:
                choosing, candidates = (
                    selection.choosing(_locked(connection, name).values()),
                    candidates_for_selection(connection),
                )
                for deployment in choosing:
                    deployed_devices.choose(connection, deployment, _missing(connection, deployment, candidates))
                _count_change(connection)
        return bool(names)

    def count_change(self) -> None:
        """Let all replicas look at the targets of their devices again."""
        with self._transactions.write() as connection:
            _count_change(connection)

    # Devices

    def connected(self, arrivals: Collection[Arrival]) -> dict[str, list[DeviceTarget]]:
        """Record what devices have installed, by their own account; return their targets."""
        now = time.time()
        with self._transactions.read() as connection:
            known = _all(connection)
        if not known:
            return {}
        found: dict[str, list[DeviceTarget]] = {}
        by_device = {arrival.device: arrival for arrival in arrivals}
        with self._transactions.write() as connection:
            for device in sorted(by_device):  # in one order, so that replicas do not deadlock
                installed = [release for release in by_device[device].installed if release.name in known]
                _replace_installed(connection, device, installed)
            manifests = releases.signed_manifests(connection)
            for views in deployed_devices.views_of_devices(connection, known, by_device).values():
                for device, view in views.items():
                    after = _after_connecting(connection, view, by_device[device].fingerprint, now)
                    found.setdefault(device, []).extend(_targets(after, manifests))
        return found

    def report(self, report: ReleaseReport) -> list[DeviceTarget]:
        """Record a device's report on a target; return its target now.

        Raises NotFound if it was never chosen, InvalidInput for a score that the release's target cannot have.
        """
        with self._transactions.write() as connection:
            known = {report.name: _of_name(connection, report.name)}
            deployed_devices.save_installed(connection, report.device, [report.installed])
            deployed_devices.lock(connection, report.name, report.device)
            views = deployed_devices.views_of_devices(connection, known, [report.device])
            view = views.get(report.name, {}).get(report.device)
            if view is None or report.deployment not in {choice.deployment for choice in view.choices}:
                raise NotFound(
                    f"no deployment {report.deployment} of {report.name!r} has chosen device {report.device!r}"
                )
            if report.score is not None or report.current_score is not None:
                manifest = releases.one(connection, report.name, report.version).manifest
                report.require_fits(manifest.target.kind)
                if manifest.private:  # no noise covers what the device has reported in spite of the manifest
                    report = replace(report, score=None, current_score=None, samples=0)
            view = transitions.after_report(view, report, time.time())
            deployed_devices.save(connection, report.name, view.choices)
            return _targets(view, releases.signed_manifests(connection))

    def targets(self, devices: Collection[str]) -> dict[str, list[DeviceTarget]]:
        """Return the targets of devices."""
        with self._transactions.read() as connection:
            views = deployed_devices.views_of_devices(connection, _all(connection), devices)
            manifests = releases.signed_manifests(connection)
            found: dict[str, list[DeviceTarget]] = {}
            for by_device in views.values():
                for device, view in by_device.items():
                    found.setdefault(device, []).extend(_targets(view, manifests))
            return found

    def may_fetch(self, device: str, sha256: str) -> bool:
        """Return True if a blob belongs to a release that was deployed to the device."""
        with self._transactions.read() as connection:
            return deployed_devices.may_fetch(connection, device, sha256)


# Deployments


def _all(connection: sql.Connection) -> dict[str, dict[int, Deployment]]:
    found: dict[str, dict[int, Deployment]] = {}
    for row in connection.execute(_ALL).mappings():
        found.setdefault(row["name"], {})[row["number"]] = Deployment(**row)
    return found


def _of_name(connection: sql.Connection, name: str) -> dict[int, Deployment]:
    rows = connection.execute(_OF_NAME, {"of_name": name}).mappings()
    return {row["number"]: Deployment(**row) for row in rows}


def _locked(connection: sql.Connection, name: str) -> dict[int, Deployment]:
    """Return the deployments of a release, which no other transaction changes until this one ends."""
    connection.execute(_LOCK, {"of_name": name})
    return _of_name(connection, name)


def _require_devices(view: shown.Deployment, *, allow_empty: bool) -> shown.Deployment:
    if not allow_empty:
        selection.require_any(view.matching, view.labels, trusted=view.trusted_labels)
    return view


def _require_deployed(known: Mapping[int, Deployment], name: str) -> Mapping[int, Deployment]:
    if not known:
        raise NotFound(f"release {name!r} was never deployed", field="release", value=name)
    return known


def _update(connection: sql.Connection, deployment: Deployment) -> shown.Deployment:
    of_it = sql.and_(_columns.name == deployment.name, _columns.number == deployment.number)
    changes = {"percent": deployment.percent, "status": deployment.status}
    connection.execute(sql.update(tables.deployments).where(of_it).values(**changes))
    return _choose_and_view(connection, deployment)


def _count_change(connection: sql.Connection) -> None:
    version = tables.deployments_version.c.version
    connection.execute(sql.update(tables.deployments_version).values(version=version + 1))


# Choices


def _choose_and_view(connection: sql.Connection, deployment: Deployment) -> shown.Deployment:
    if deployment.status == "active":
        deployed_devices.choose(
            connection, deployment, _missing(connection, deployment, candidates_for_selection(connection))
        )
    _count_change(connection)
    return _views(connection, deployment.name, [deployment])[0]


def _missing(connection: sql.Connection, deployment: Deployment, candidates: Collection[Candidate]) -> list[str]:
    """Return the devices that an active deployment has yet to choose."""
    devices = selection.matching(deployment.labels, candidates, trusted=deployment.trusted_labels)
    return selection.choose(deployment, devices, deployed_devices.chosen_by(connection, deployment))


# Views


def _views(connection: sql.Connection, name: str, wanted: Iterable[Deployment]) -> list[shown.Deployment]:
    views = _known_views(connection, name)
    candidates = candidates_for_selection(connection)
    return [_view(deployment, views.values(), candidates) for deployment in wanted]


def _view(deployment: Deployment, views: Collection[DeviceView], candidates: Collection[Candidate]) -> shown.Deployment:
    number = deployment.number
    states = Counter(
        view.shown_state(number) for view in views if any(choice.deployment == number for choice in view.choices)
    )
    return from_values(
        shown.Deployment,
        deployment,
        matching=len(selection.matching(deployment.labels, candidates, trusted=deployment.trusted_labels)),
        chosen=states.total(),
        states=states,
        stranded=sum(view.stranded(number) for view in views),
    )


def _known_views(connection: sql.Connection, name: str) -> dict[str, DeviceView]:
    """Return the views of one release by the devices that it has chosen and that were not removed or revoked since."""
    known = set(connection.execute(sql.select(_devices.device).where(_devices.revoked == 0)).scalars())
    views = deployed_devices.views_of_name(connection, {name: _of_name(connection, name)}, name)
    return {device: view for device, view in views.items() if device in known}


def _deployed(view: DeviceView, number: int) -> shown.DeployedDevice | None:
    """Return a device as operators see it, in one deployment or else the newest; None if that has not chosen it."""
    chosen = [choice for choice in view.choices if choice.deployment == number] if number else [view.newest]
    if not chosen:
        return None
    deployment = view.deployments[chosen[0].deployment]
    return from_values(
        shown.DeployedDevice,
        chosen[0],
        online=False,
        version=deployment.version,
        variant=deployment.variant,
        state=view.shown_state(deployment.number),
        installed=view.installed.version,
        previous=view.installed.previous,
        reported=moment_or_none(chosen[0].time),
    )


# Devices


def _replace_installed(connection: sql.Connection, device: str, installed: Collection[InstalledRelease]) -> None:
    before, now = deployed_devices.installed_on(connection, device), {release.name: release for release in installed}
    gone = [InstalledRelease(name=name) for name in before if name not in now]
    deployed_devices.save_installed(connection, device, [*now.values(), *gone])


def _after_connecting(connection: sql.Connection, view: DeviceView, fingerprint: str, now: float) -> DeviceView:
    after = transitions.connected(view, fingerprint, now)
    changed = [choice for choice, before in zip(after.choices, view.choices, strict=True) if choice != before]
    deployed_devices.save(connection, view.installed.name, changed)
    return after


def _targets(view: DeviceView, manifests: Mapping[tuple[str, int], tuple[BlobRef, BlobRef]]) -> list[DeviceTarget]:
    """Return a device's target of one release, if it has one."""
    target = view.target()
    if target is None:
        return []
    name = view.installed.name
    manifest, signature = manifests.get((name, target.version), (None, None))
    message = TargetRelease(
        name=name,
        deployment=target.deployment,
        version=target.version,
        variant=target.variant,
        manifest=manifest,
        signature=signature,
        max_drop=target.max_drop,
        roll_back=target.roll_back,
    )
    return [DeviceTarget(target=message, installed=not differs(target, view.installed))]


def _row(deployment: Deployment) -> dict[str, object]:
    return {**asdict(deployment), "labels": dict(deployment.labels)}
