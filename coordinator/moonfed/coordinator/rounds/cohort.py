"""Drawing of a round's cohort from the online devices, as a pure function."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping

from moonfed.coordinator.rounds.settings import RunSettings


def draw_cohort(
    settings: RunSettings,
    round_: int,
    attempt: int,
    online: Collection[str],
    samples: Mapping[str, int],
    delivered: Collection[str] = (),
) -> tuple[str, ...]:
    """Draw a round's cohort, sorted by name; a function of seed, round, attempt, devices and samples.

    `delivered`: the devices whose update of an earlier attempt counts; they are drawn first, online or not.
    """
    devices = {*online, *delivered}
    order = draw_order(settings, round_, attempt, devices, samples)
    first = sorted(order, key=lambda device: device not in delivered)
    return tuple(sorted(first[: settings.drawn(len(devices))]))


def draw_order(
    settings: RunSettings, round_: int, attempt: int, devices: Collection[str], samples: Mapping[str, int]
) -> list[str]:
    """Return the devices in the order in which a round draws them, and then their replacements.

    Sampling by samples is weighted and without replacement (Efraimidis and Spirakis 2006: the smallest keys
    -ln(u)/weight). A device whose samples are unknown has the mean weight of the others.
    """
    known = [samples[device] for device in devices if device in samples]
    mean_weight = sum(known) / len(known) if known else 1.0

    def rank(device: str) -> tuple[float, bytes]:
        digest = _digest(settings, round_, attempt, device)
        if settings.sampling == "uniform":
            return 0.0, digest
        return -math.log(_unit(digest)) / samples.get(device, mean_weight), digest

    return sorted(devices, key=rank)


def ranked(settings: RunSettings, round_: int, attempt: int, devices: Collection[str]) -> list[str]:
    """Return the devices in the order in which a uniform draw selects them."""
    return sorted(devices, key=lambda device: _digest(settings, round_, attempt, device))


def _digest(settings: RunSettings, round_: int, attempt: int, device: str) -> bytes:
    return hashlib.sha256(f"{settings.seed}/{round_}/{attempt}/{device}".encode()).digest()


def _unit(digest: bytes) -> float:
    """Return a number in (0, 1], uniform over digests."""
    return (int.from_bytes(digest[:8], "big") + 1) / 2**64
