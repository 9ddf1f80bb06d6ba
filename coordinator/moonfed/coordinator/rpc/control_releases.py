"""The Control service's calls about releases and their deployments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from moonfed.control import releases as shown
from moonfed.control.codec import to_message
from moonfed.coordinator.api.release_api import ReleaseApi
from moonfed.coordinator.deployments.state import Deployment
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.control_calls import ControlCalls
from moonfed.formatting import number_text
from moonfed.labels import write_labels
from moonfed.models.release_manifest import FLOAT32
from moonfed.v1 import control_pb2


class ReleaseCalls(ControlCalls):
    """Releases and deployments."""

    def __init__(self, authenticator: Authenticator, auditor: Auditor, releases: ReleaseApi) -> None:
        ControlCalls.__init__(self, authenticator, auditor)
        self._releases = releases

    async def CreateRelease(
        self, request: control_pb2.CreateReleaseRequest, context: grpc.ServicerContext
    ) -> control_pb2.Release:
        details = f"create a release of manifest {request.manifest[:12]!r}"
        operator = self._require(context, "CreateRelease", details).name
        async with self._change(context, "CreateRelease", details) as change:
            made = await self._releases.create(request.manifest, request.signature, operator)
            change.details = (
                f"create version {made.version} of release {made.name!r} from round {made.round} of run "
                f"{made.run!r}, manifest {request.manifest[:12]}"
            )
        return to_message(control_pb2.Release, made)

    async def ListReleases(
        self, request: control_pb2.ListReleasesRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListReleasesReply:
        self._require(context, "ListReleases")
        found = await self._releases.releases(request.name)
        return control_pb2.ListReleasesReply(releases=[to_message(control_pb2.Release, record) for record in found])

    async def GetRelease(
        self, request: control_pb2.GetReleaseRequest, context: grpc.ServicerContext
    ) -> control_pb2.Release:
        self._require(context, "GetRelease")
        return to_message(control_pb2.Release, await self._releases.release(request.name, request.version))

    async def DeployRelease(
        self, request: control_pb2.DeployReleaseRequest, context: grpc.ServicerContext
    ) -> control_pb2.Deployment:
        percent = number_text(request.percent)
        details = f"deploy version {request.version} of release {request.name!r} to {percent} % of "
        details += f"the devices with {write_labels(request.labels)!r}" if request.labels else "all devices"
        operator = self._require(context, "DeployRelease", details).name
        async with self._change(context, "DeployRelease", details) as change:
            view = await self._releases.deploy(_new_deployment(request, operator), allow_empty=request.allow_empty)
            change.details += f": deployment {view.number}, {view.chosen} devices"
        return to_message(control_pb2.Deployment, view)

    async def WidenDeployment(
        self, request: control_pb2.WidenDeploymentRequest, context: grpc.ServicerContext
    ) -> control_pb2.Deployment:
        details = f"widen the deployment of release {request.name!r} to {number_text(request.percent)} %"
        async with self._change(context, "WidenDeployment", details) as change:
            view = await self._releases.widen(request.name, request.percent, allow_empty=request.allow_empty)
            change.details += f": {_which(view)}, {view.chosen} devices"
        return to_message(control_pb2.Deployment, view)

    async def PauseDeployment(
        self, request: control_pb2.PauseDeploymentRequest, context: grpc.ServicerContext
    ) -> control_pb2.Deployment:
        async with self._change(context, "PauseDeployment", f"pause release {request.name!r}") as change:
            view = await self._releases.pause(request.name)
            change.details += f": {_which(view)}"
        return to_message(control_pb2.Deployment, view)

    async def ResumeDeployment(
        self, request: control_pb2.ResumeDeploymentRequest, context: grpc.ServicerContext
    ) -> control_pb2.Deployment:
        async with self._change(context, "ResumeDeployment", f"resume release {request.name!r}") as change:
            view = await self._releases.resume(request.name)
            change.details += f": {_which(view)}"
        return to_message(control_pb2.Deployment, view)

    async def RollBackDeployment(
        self, request: control_pb2.RollBackDeploymentRequest, context: grpc.ServicerContext
    ) -> control_pb2.Deployment:
        details = f"roll back release {request.name!r}"
        details += f" to version {request.to_version}" if request.to_version else ""
        async with self._change(context, "RollBackDeployment", details) as change:
            if request.to_version:
                view = await self._releases.roll_back_to(request.name, request.to_version)
            else:
                view = await self._releases.roll_back(request.name, request.number)
            if view.status == "rolled-back":
                change.details += f": withdrew {_which(view)}, {view.chosen} devices"
        return to_message(control_pb2.Deployment, view)

    async def ListDeployments(
        self, request: control_pb2.ListDeploymentsRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListDeploymentsReply:
        self._require(context, "ListDeployments")
        found = await self._releases.deployments(request.name)
        return control_pb2.ListDeploymentsReply(
            deployments=[to_message(control_pb2.Deployment, view) for view in found]
        )

    async def ListDeployedDevices(
        self, request: control_pb2.ListDeployedDevicesRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.DeployedDevice]:
        self._require(context, "ListDeployedDevices")
        for device in await self._releases.devices(request.name, request.deployment):
            yield to_message(control_pb2.DeployedDevice, device)


def _new_deployment(message: control_pb2.DeployReleaseRequest, operator: str) -> Deployment:
    """Convert an operator's request; InvalidInput names a wrong field."""
    return Deployment(
        name=message.name,
        version=message.version,
        variant=message.variant or FLOAT32,
        labels=dict(message.labels),
        trusted_labels=message.trusted_labels,
        percent=message.percent,
        max_drop=message.max_drop,
        operator=operator,
    )


def _which(deployment: shown.Deployment) -> str:
    return f"deployment {deployment.number} of version {deployment.version}"
