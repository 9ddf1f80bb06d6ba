"""The asynchronous client's calls about releases and deployments."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.client.aio.connection import AsyncConnection
from moonfed.control.codec import from_message
from moonfed.control.releases import DeployedDevice, Deployment, Release
from moonfed.v1 import control_pb2


class AsyncReleaseCalls:
    """Releases and their deployments. `moonfed-export release create` makes a release: that needs torch and ONNX."""

    connection: AsyncConnection

    async def releases(self, name: str = "") -> list[Release]:
        """List all versions of all releases, or of one.

        Example:
            scores = {found.version: found.score for found in await coordinator.releases("digits")}
        """
        request, kind = control_pb2.ListReleasesRequest(name=name), control_pb2.ListReleasesReply
        reply = await self.connection.ask(kind, "ListReleases", request)
        return [from_message(Release, message) for message in reply.releases]

    async def release(self, name: str, *, version: int | None = None) -> Release:
        """Return one version of a release, by default the newest; raises NotFound.

        Example:
            print((await coordinator.release("digits")).score)
        """
        request = control_pb2.GetReleaseRequest(name=name, version=version or 0)
        return await self.connection.ask(Release, "GetRelease", request)

    async def deploy(
        self,
        name: str,
        version: int,
        *,
        percent: float = 100.0,
        labels: Mapping[str, str] | None = None,
        trusted_labels: bool = False,
        variant: str = "float32",
        max_drop: float = 1.0,
        allow_empty: bool = False,
    ) -> Deployment:
        """Deploy a version to all devices, or some of them; each installs it unless it declines.

        `percent`: of the devices with these labels, rounded up. `max_drop`: points, or percent, by which it may be
        worse than the current version on a device's holdout. Raises InvalidInput if no known device has the labels,
        unless `allow_empty`.

        Example:
            await coordinator.deploy("digits", 3, percent=10, labels={"site": "berlin"})
        """
        request = control_pb2.DeployReleaseRequest(
            name=name,
            version=version,
            percent=percent,
            labels=labels or {},
            trusted_labels=trusted_labels,
            variant=variant,
            max_drop=max_drop,
            allow_empty=allow_empty,
        )
        return await self.connection.ask(Deployment, "DeployRelease", request, once=True)

    async def widen(self, name: str, *, percent: float = 100.0, allow_empty: bool = False) -> Deployment:
        """Widen a release's newest deployment; the devices chosen before stay chosen.

        Example:
            await coordinator.widen("digits", percent=50)
        """
        request = control_pb2.WidenDeploymentRequest(name=name, percent=percent, allow_empty=allow_empty)
        return await self.connection.ask(Deployment, "WidenDeployment", request)

    async def pause_deployment(self, name: str) -> Deployment:
        """Pause a release's newest deployment: no further device begins to install it.

        Example:
            await coordinator.pause_deployment("digits")
        """
        request = control_pb2.PauseDeploymentRequest(name=name)
        return await self.connection.ask(Deployment, "PauseDeployment", request)

    async def resume_deployment(self, name: str) -> Deployment:
        """Resume a release's newest deployment.

        Example:
            await coordinator.resume_deployment("digits")
        """
        request = control_pb2.ResumeDeploymentRequest(name=name)
        return await self.connection.ask(Deployment, "ResumeDeployment", request)

    async def roll_back(self, name: str, *, to: int | None = None) -> Deployment:
        """Roll back the newest deployment that is not rolled back yet; its devices return to what they had before.

        `to`: a version; all newer deployments than its newest are rolled back, and the oldest of them is returned. A
        repetition changes nothing.

        Example:
            await coordinator.roll_back("digits")
        """
        standing = [one.number for one in await self.deployments(name) if one.status != "rolled-back"]
        # The number makes a repetition harmless: without it, a second attempt would roll back the one before.
        number = standing[-1] if standing and to is None else 0
        request = control_pb2.RollBackDeploymentRequest(name=name, number=number, to_version=to or 0)
        return await self.connection.ask(Deployment, "RollBackDeployment", request)

    async def deployments(self, name: str = "") -> list[Deployment]:
        """List the deployments of a release, oldest first, or the newest of each.

        Example:
            print((await coordinator.deployments("digits"))[-1].states)
        """
        request, kind = control_pb2.ListDeploymentsRequest(name=name), control_pb2.ListDeploymentsReply
        reply = await self.connection.ask(kind, "ListDeployments", request)
        return [from_message(Deployment, message) for message in reply.deployments]

    async def deployed_devices(self, name: str) -> list[DeployedDevice]:
        """List the devices that deployments of a release have chosen, with the version of each, sorted by name.

        Example:
            pandas.DataFrame(await coordinator.deployed_devices("digits")).groupby("state").size()
        """
        request = control_pb2.ListDeployedDevicesRequest(name=name)
        return await self.connection.ask_all(DeployedDevice, "ListDeployedDevices", request)
