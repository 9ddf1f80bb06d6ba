"""Calls about releases and deployments."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.client.calls.steps import Steps, ask, ask_all
from moonfed.client.convert import releases as convert
from moonfed.client.records.releases import DeployedDevice, Deployment, Release
from moonfed.v1 import control_pb2


def releases(name: str) -> Steps[list[Release]]:
    """List versions of releases."""
    reply = yield from ask(control_pb2.ListReleasesReply, "ListReleases", control_pb2.ListReleasesRequest(name=name))
    return [convert.release(message) for message in reply.releases]


def release(name: str, version: int | None) -> Steps[Release]:
    """Return one version of a release."""
    request = control_pb2.GetReleaseRequest(name=name, version=version or 0)
    return convert.release((yield from ask(control_pb2.Release, "GetRelease", request)))


def deploy(
    name: str,
    version: int,
    *,
    percent: float,
    labels: Mapping[str, str],
    trusted_labels: bool,
    variant: str,
    max_drop: float,
    allow_empty: bool,
) -> Steps[Deployment]:
    """Deploy a version."""
    request = control_pb2.DeployReleaseRequest(
        name=name,
        version=version,
        variant=variant,
        labels=labels,
        trusted_labels=trusted_labels,
        percent=percent,
        max_drop=max_drop,
        allow_empty=allow_empty,
    )
    return convert.deployment((yield from ask(control_pb2.Deployment, "DeployRelease", request, attempts=1)))


def widen(name: str, percent: float, *, allow_empty: bool) -> Steps[Deployment]:
    """Widen the newest deployment."""
    request = control_pb2.WidenDeploymentRequest(name=name, percent=percent, allow_empty=allow_empty)
    return convert.deployment((yield from ask(control_pb2.Deployment, "WidenDeployment", request)))


def pause(name: str) -> Steps[Deployment]:
    """Pause the newest deployment."""
    request = control_pb2.PauseDeploymentRequest(name=name)
    return convert.deployment((yield from ask(control_pb2.Deployment, "PauseDeployment", request)))


def resume(name: str) -> Steps[Deployment]:
    """Resume the newest deployment."""
    request = control_pb2.ResumeDeploymentRequest(name=name)
    return convert.deployment((yield from ask(control_pb2.Deployment, "ResumeDeployment", request)))


def roll_back(name: str, to: int | None) -> Steps[Deployment]:
    """Roll back the newest deployment that is not rolled back, or all that are newer than a version's."""
    known = yield from deployments(name)
    standing = [one.number for one in known if one.status != "rolled-back"]
    # The number makes a repetition harmless: without it, a second attempt would roll back the one before.
    number = standing[-1] if standing and to is None else 0
    request = control_pb2.RollBackDeploymentRequest(name=name, number=number, to_version=to or 0)
    return convert.deployment((yield from ask(control_pb2.Deployment, "RollBackDeployment", request)))


def deployments(name: str) -> Steps[list[Deployment]]:
    """List deployments of a release, or the newest of each."""
    request = control_pb2.ListDeploymentsRequest(name=name)
    reply = yield from ask(control_pb2.ListDeploymentsReply, "ListDeployments", request)
    return [convert.deployment(message) for message in reply.deployments]


def deployed_devices(name: str) -> Steps[list[DeployedDevice]]:
    """List the devices that deployments of a release have chosen."""
    request = control_pb2.ListDeployedDevicesRequest(name=name)
    found = yield from ask_all(control_pb2.DeployedDevice, "ListDeployedDevices", request)
    return [convert.deployed_device(message) for message in found]
