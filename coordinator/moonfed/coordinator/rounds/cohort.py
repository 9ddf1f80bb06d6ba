"""Drawing of a round's cohort from the online devices, as a pure function."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.sizes import drawn


def draw_cohort(
    settings: RunSettings,
    draw: Draw,
    round_: int,
    attempt: int,
    online: Collection[str],
    samples: Mapping[str, int],
    delivered: Collection[str] = (),
) -> tuple[str, ...]:
    """Draw a round's cohort, sorted by name; a function of the draw's secret, round, attempt, devices and samples.

    `delivered`: the devices whose update of an earlier attempt counts; they are drawn first, online or not. A run with
    privacy draws each device by itself, so the cohort's size varies.
    """
    if settings.private:
        return poisson_cohort(settings, draw, round_, attempt, online)
    devices = {*online, *delivered}
    order = draw_order(settings, draw, round_, attempt, devices, samples)
    first = sorted(order, key=lambda device: device not in delivered)
    return tuple(sorted(first[: drawn(settings, len(devices))]))


def poisson_cohort(
    settings: RunSettings, draw: Draw, round_: int, attempt: int, devices: Iterable[str]
) -> tuple[str, ...]:
    """Return those of the devices that a round with privacy draws, sorted by name.

    Poisson sampling: each is drawn with the same probability, independently of all others, whenever it comes online.
    """
    purpose, rate = f"{round_}/{attempt}", settings.sampling_rate
    return tuple(sorted(device for device in devices if _unit(draw.digest(purpose, device)) <= rate))


def draw_order(
    settings: RunSettings, draw: Draw, round_: int, attempt: int, devices: Collection[str], samples: Mapping[str, int]
) -> list[str]:
    """Return the devices in the order in which a round draws them, and then their replacements.

    Sampling by samples is weighted and without replacement (Efraimidis and Spirakis 2006: the smallest keys
    -ln(u)/weight). A device whose samples are unknown has the mean weight of the others.
    """
    purpose = f"{round_}/{attempt}"
    if settings.sampling == "uniform":
        return draw.order(purpose, devices)
    known = [samples[device] for device in devices if device in samples]
    mean_weight = sum(known) / len(known) if known else 1.0

    def rank(device: str) -> tuple[float, bytes]:
        digest = draw.digest(purpose, device)
        return -math.log(_unit(digest)) / samples.get(device, mean_weight), digest

    return sorted(devices, key=rank)


def _unit(digest: bytes) -> float:
    """Return a number in (0, 1], uniform over digests."""
    return (int.from_bytes(digest[:8], "big") + 1) / 2**64
