"""The fingerprint of what decides for which runs this device is eligible: its data, limits, software and trust.

The coordinator asks again about a run only if the fingerprint differs from that of the device's answer. So a device
that was ineligible when it stopped starts with another one: it logs the reason again, and looks whether that is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from moonfed.data.fingerprint import data_fingerprint
from moonfed.edge_client.state.trust import load_readable
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.signing import canonical
from moonfed.version import RELEASE

REFUSED = "refused"  # a file in the state directory of a device that has refused a run or release
NO_DATA = "none"  # of a device for inference only
VALID_SECONDS = 60.0  # of a computed fingerprint: retries of a connection need not look at all files again


class DeviceFingerprint:
    """The fingerprint, recomputed when needed. May be used by any thread."""

    def __init__(self, settings: WorkerSettings, platform: Mapping[str, str]) -> None:
        self._settings = settings
        self._constant: list[object] = [
            RELEASE,
            list(settings.plan_interfaces),
            sorted(platform.items()),
            (
                settings.data,
                settings.target,
                list(settings.ignored_folders),
                settings.holdout,
                settings.accelerator,
                settings.precision,
                settings.max_memory,
            ),
        ]
        self._start = os.urandom(16).hex()  # stands for the data of a function, which may differ after every start
        if Path(settings.state, REFUSED).exists():
            self._constant.append(self._start)
        self._newest, self._computed = "", -VALID_SECONDS
        self._announced = ""

    @property
    def announced(self) -> str:
        """The fingerprint that the coordinator knows."""
        return self._announced

    @property
    def covers_data(self) -> bool:
        """True if a change of the data changes the fingerprint."""
        return self._data() is not None

    def announce(self) -> str:
        """Return the fingerprint for the coordinator."""
        if time.monotonic() - self._computed >= VALID_SECONDS:
            self._compute()
        self._announced = self._newest
        return self._announced

    def has_changed(self) -> bool:
        """Return True if the announced fingerprint is outdated."""
        if not self._announced:
            return False
        self._compute()
        return self._newest != self._announced

    def _data(self) -> str | None:
        if not self._settings.data:
            return NO_DATA
        return data_fingerprint(self._settings.data, self._settings.ignored_folders)

    def _compute(self) -> None:
        trust = load_readable(Path(self._settings.state))
        variable = [
            self._data() or self._start,
            hashlib.sha256(canonical.encode(trust.trust.to_document())).hexdigest() if trust else "",
        ]
        content = json.dumps([*self._constant, *variable])
        self._newest, self._computed = hashlib.sha256(content.encode()).hexdigest(), time.monotonic()
