"""Releases and deployments for tests of the coordinator."""

from __future__ import annotations

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.coordinator.deployments.state import Choice, Deployment, DeviceView
from moonfed.coordinator.records import ReleaseRecord
from moonfed.coordinator.storage.store import Store
from moonfed.fleet.target_release import InstalledRelease, Outcome, ReleaseReport
from moonfed.models.release_manifest import PLAN_FILES, VARIANT_FILES, WEIGHTS_FILE, Evaluation, ReleaseManifest
from tests.support.store_records import RUN

NAME = "digits"
ENDED = RUN.run


def ref(text: str) -> BlobRef:
    return ref_of_bytes(text.encode())


def release_manifest(version: int = 1, **fields: object) -> ReleaseManifest:
    """A release of the initial weights of the store's run."""
    plan = {MANIFEST_FILE: RUN.manifest, PLAN_FILE: ref("plan"), WEIGHTS_FILE: RUN.initial}
    assert set(plan) == set(PLAN_FILES)
    defaults: dict[str, object] = {
        "name": NAME,
        "version": version,
        "created": 1_700_000_000,
        "run": RUN.run,
        "round": 0,
        "input": InputSpec(kind="image", shape=(8, 8, 1)),
        "target": class_target(("cat", "dog")),
        "variants": {
            variant: {name: ref(f"{variant} {version} {name}") for name in VARIANT_FILES}
            for variant in ("float32", "int8")
        },
        "plan": plan,
        "evaluation": Evaluation(score=0.9, samples=100, data_sha256=ref("data").sha256),
    }
    return ReleaseManifest(**(defaults | fields))  # type: ignore[arg-type]


def release_record(version: int = 1, **fields: object) -> ReleaseRecord:
    manifest = release_manifest(version, **fields)
    return ReleaseRecord(
        manifest=manifest,
        ref=ref_of_bytes(manifest.to_bytes()),
        signature=ref(f"signature {manifest.name} {version}"),
        created=1_700_000_000.0,
        operator="ann",
    )


def add_releases(store: Store, versions: int, devices: int = 0, name: str = NAME, **fields: object) -> list[str]:
    """Record a run, versions of a release with these fields, and devices, whose names are returned."""
    store.add_run(RUN)
    for version in range(1, versions + 1):
        store.releases.add(release_record(version, name=name, **fields))
    return add_devices(store, devices)


def add_devices(store: Store, devices: int, first: int = 0, **labels: str) -> list[str]:
    names = [f"cam-{number:03}" for number in range(first, first + devices)]
    for device in names:
        store.devices.seen(device, {}, labels=labels)
    return names


def report(
    device: str, deployment: int, version: int, outcome: Outcome, has: int, previous: int = 0, **fields: object
) -> ReleaseReport:
    """Report on a target of the float32 variant; `has`: the version installed afterwards."""
    return ReleaseReport(
        device=device,
        name=NAME,
        deployment=deployment,
        version=version,
        outcome=outcome,
        installed=installed(has, previous),
        **fields,  # type: ignore[arg-type]
    )


def installed(version: int, previous: int = 0, variant: str = "float32") -> InstalledRelease:
    return InstalledRelease(name=NAME, version=version, variant=variant if version else "", previous=previous)


def deployment(number: int = 1, version: int = 1, **fields: object) -> Deployment:
    return Deployment(name=NAME, number=number, version=version, **fields)  # type: ignore[arg-type]


def view(has: int, *choices: Choice, **statuses: str) -> DeviceView:
    """Version N is deployment N's; `statuses` by "d1", "d2", …, active unless given."""
    deployments = {
        choice.deployment: deployment(
            choice.deployment, choice.deployment, status=statuses.get(f"d{choice.deployment}", "active")
        )
        for choice in choices
    }
    newest_first = tuple(sorted(choices, key=lambda choice: -choice.deployment))
    return DeviceView(deployments=deployments, choices=newest_first, installed=installed(has))


def chosen(number: int, state: str = "pending", *, had: bool | None = None, **fields: object) -> Choice:
    has_had = state == "installed" if had is None else had
    return Choice(deployment=number, device="cam-1", state=state, had=has_had, **fields)  # type: ignore[arg-type]
