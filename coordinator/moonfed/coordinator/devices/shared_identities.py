"""Identities that several machines use, such as copies of one SD card, which take turns in ending each other's session.

Every process of a device has an instance of its own, which it names when it connects. A device that reconnects, from
whatever address, still has its instance, and one that restarts never returns to a former one. So an instance that
connects again after another one did is proof that both are alive.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

RETURNS = 3  # a call of a process that has ended, delayed in the network, can look like one or two
RECENT_SECONDS = 24 * 3600.0  # during which a return counts
REPEAT_SECONDS = 3600.0  # between two warnings about a device
INSTANCES = 16  # remembered of a device

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Instance:
    address: str  # with a port
    serial: str  # of its certificate; empty if unknown


@dataclass(slots=True)
class _Uses:
    """The instances of one device, the one that connected last at the end, and who returned when."""

    instances: dict[str, _Instance] = field(default_factory=dict)
    returns: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=RETURNS))  # with the former one
    warned: float = -float("inf")


class SharedIdentities:
    """The processes that connect under each name. Lives on one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[str, _Uses] = {}

    def connected(self, device: str, instance: str, address: str, serial: str = "") -> None:
        """Note that an instance of a device has connected; an older client has none, which is evidence of nothing."""
        if not instance:
            return
        uses, now = self._uses.setdefault(device, _Uses()), self._clock()
        latest = next(reversed(uses.instances), instance)
        if instance != latest and instance in uses.instances:
            del uses.instances[instance]
            uses.returns.append((now, instance, latest))
        uses.instances[instance] = _Instance(address, serial)
        if len(uses.instances) > INSTANCES:
            del uses.instances[next(iter(uses.instances))]
        if (addresses := self.addresses(device)) and uses.warned + REPEAT_SECONDS <= now:
            uses.warned = now
            _log.warning("%s", describe_shared(device, addresses), extra={"device": device})

    def addresses(self, device: str) -> tuple[str, ...]:
        """Return where the machines that share a device's identity are; nothing if only one uses it."""
        uses, now = self._uses.get(device), self._clock()
        if uses is None or len(uses.returns) < RETURNS or uses.returns[0][0] + RECENT_SECONDS < now:
            return ()
        involved = {name for _, *names in uses.returns for name in names} & uses.instances.keys()
        found = [uses.instances[name].address for name in involved]
        hosts = {address.rpartition(":")[0] for address in found}
        return tuple(sorted(hosts if len(hosts) > 1 else found)) if len(found) > 1 else ()

    def forget(self, *, devices: Collection[str], serials: Collection[str]) -> None:
        """Forget devices that were revoked, and instances whose certificates are no longer accepted."""
        for device, uses in list(self._uses.items()):
            rejected = [name for name, one in uses.instances.items() if one.serial in serials]
            for name in rejected:
                del uses.instances[name]
            if device in devices or not uses.instances:
                del self._uses[device]


def describe_shared(device: str, addresses: Sequence[str]) -> str:
    """Say who shares a device's identity, and what to do."""
    return (
        f"several machines use the identity of {device} in turns, at {' and '.join(addresses)}: one is a copy of the "
        f"other; run: moonfed-coordinator device revoke {device}, then enrol each again, with an empty state directory "
        "and a name of its own"
    )
