"""The synchronous client's calls about devices and join tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from moonfed.client.calls import devices as calls
from moonfed.client.records.devices import Device, NewToken, Token
from moonfed.client.sync.caller import Caller


class DeviceCalls(Caller):
    """Devices and the join tokens with which they enrol."""

    def devices(
        self, *, labels: Mapping[str, str] | None = None, online: bool = False, ineligible: str = ""
    ) -> list[Device]:
        """List devices, sorted by name, that meet all conditions.

        `labels`: labels that a device must have. `online`: only devices that are online. `ineligible`: the name of a
        run, for only the devices that cannot take part in it; their field `ineligible` has the reason.

        Example:
            table = pandas.DataFrame(coordinator.devices(labels={"site": "berlin"}))
        """
        return self._do(calls.devices(labels or {}, online=online, ineligible=ineligible))

    def device(self, device: str) -> Device:
        """Return one device, with its certificates; raises NotFound.

        Example:
            print(coordinator.device("cam-1").certificate_expires)
        """
        return self._do(calls.device(device))

    def revoke_device(self, device: str) -> Device:
        """Reject all certificates of a device at once. It can come back only with a join token made for it.

        Example:
            coordinator.revoke_device("cam-1")
        """
        return self._do(calls.revoke(device))

    def remove_device(self, device: str) -> None:
        """Remove a device for good; runs keep the updates that they have counted.

        Example:
            coordinator.remove_device("cam-1")
        """
        self._do(calls.remove(device))

    def rename_device(self, device: str, new_name: str) -> Device:
        """Rename a device, which fetches a certificate with its new name; its update in progress is lost.

        Example:
            coordinator.rename_device("cam-1", "gate-north")
        """
        return self._do(calls.rename(device, new_name))

    def label_device(
        self, device: str, labels: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> Device:
        """Set labels of a device, which override those that it reports itself, and remove some that operators set.

        Example:
            coordinator.label_device("cam-1", {"site": "berlin"}, remove=["tier"])
        """
        return self._do(calls.label(device, labels or {}, remove))

    def create_token(
        self, *, uses: int = 1, valid_hours: float = 24.0, device: str = "", trust: Path | None = None
    ) -> NewToken:
        """Create a join token, with which `uses` devices can enrol.

        `device`: a known device that is to return with another key; empty: new devices. `trust`: the trust file that
        the token contains, by default yours: the devices run bundles that its keys have signed, and no others.

        Example:
            print(coordinator.create_token(uses=5).token)
        """
        return self._do(calls.create_token(uses, valid_hours, device, trust))

    def tokens(self) -> list[Token]:
        """List the join tokens, without their secrets, oldest first.

        Example:
            usable = [token.id for token in coordinator.tokens() if token.status == "valid"]
        """
        return self._do(calls.tokens())

    def revoke_token(self, id: str) -> Token:  # noqa: A002 - the field's name
        """Revoke a join token by its id, or the id's first six or more characters; enrolled devices stay.

        Example:
            coordinator.revoke_token(token.id)
        """
        return self._do(calls.revoke_token(id))
