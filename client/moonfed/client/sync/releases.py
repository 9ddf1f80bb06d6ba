"""The synchronous client's calls about releases and deployments."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.client.calls import releases as calls
from moonfed.client.records.releases import DeployedDevice, Deployment, Release
from moonfed.client.sync.caller import Caller


class ReleaseCalls(Caller):
    """Releases and their deployments. `moonfed-export release create` makes a release: that needs torch and ONNX."""

    def releases(self, name: str = "") -> list[Release]:
        """List all versions of all releases, or of one.

        Example:
            accuracies = {found.version: found.accuracy for found in coordinator.releases("digits")}
        """
        return self._do(calls.releases(name))

    def release(self, name: str, *, version: int | None = None) -> Release:
        """Return one version of a release, by default the newest; raises NotFound.

        Example:
            print(coordinator.release("digits").accuracy)
        """
        return self._do(calls.release(name, version))

    def deploy(
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

        `percent`: of the devices with these labels, rounded up. `max_drop`: points by which a device's holdout accuracy
        may fall below its current version's. Raises InvalidInput if no known device has the labels, unless
        `allow_empty`.

        Example:
            coordinator.deploy("digits", 3, percent=10, labels={"site": "berlin"})
        """
        steps = calls.deploy(
            name,
            version,
            percent=percent,
            labels=labels or {},
            trusted_labels=trusted_labels,
            variant=variant,
            max_drop=max_drop,
            allow_empty=allow_empty,
        )
        return self._do(steps)

    def widen(self, name: str, *, percent: float = 100.0, allow_empty: bool = False) -> Deployment:
        """Widen a release's newest deployment; the devices chosen before stay chosen.

        Example:
            coordinator.widen("digits", percent=50)
        """
        return self._do(calls.widen(name, percent, allow_empty=allow_empty))

    def pause_deployment(self, name: str) -> Deployment:
        """Pause a release's newest deployment: no further device begins to install it.

        Example:
            coordinator.pause_deployment("digits")
        """
        return self._do(calls.pause(name))

    def resume_deployment(self, name: str) -> Deployment:
        """Resume a release's newest deployment.

        Example:
            coordinator.resume_deployment("digits")
        """
        return self._do(calls.resume(name))

    def roll_back(self, name: str, *, to: int | None = None) -> Deployment:
        """Roll back the newest deployment that is not rolled back yet; its devices return to what they had before.

        `to`: a version; all newer deployments than its newest are rolled back, and the oldest of them is returned. A
        repetition changes nothing.

        Example:
            coordinator.roll_back("digits")
        """
        return self._do(calls.roll_back(name, to))

    def deployments(self, name: str = "") -> list[Deployment]:
        """List the deployments of a release, oldest first, or the newest of each.

        Example:
            print(coordinator.deployments("digits")[-1].states)
        """
        return self._do(calls.deployments(name))

    def deployed_devices(self, name: str) -> list[DeployedDevice]:
        """List the devices that deployments of a release have chosen, with the version of each, sorted by name.

        Example:
            pandas.DataFrame(coordinator.deployed_devices("digits")).groupby("state").size()
        """
        return self._do(calls.deployed_devices(name))
