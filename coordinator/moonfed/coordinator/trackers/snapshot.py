"""A run as trackers receive it: parameters, series by round, pictures and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moonfed.registry import Value

ACTIVE = ("running", "paused")


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a series; `time`: seconds since the epoch, the same whenever the run is exported."""

    round: int
    name: str
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class DevicePoint:
    """A value of a device's series."""

    round: int
    device: str
    name: str
    value: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run as it is now. `pictures` and `files` are by name; files' names may contain slashes."""

    run: str
    identity: str  # differs for runs of the same name at other coordinators, or after the run was deleted
    status: str
    created: float  # seconds since the epoch
    parameters: Mapping[str, Value]
    points: Sequence[Point]
    metric: str = "accuracy"  # by which its models are compared
    device_points: Sequence[DevicePoint] = ()
    pictures: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """True once nothing but late metrics can change."""
        return self.status not in ACTIVE

    def all_points(self) -> Iterator[Point]:
        """Yield the points of the run, then those of devices, named `device/NAME/SERIES`."""
        yield from self.points
        for found in self.device_points:
            yield Point(found.round, f"device/{found.device}/{found.name}", found.value, found.time)

    def tables(self) -> dict[int, dict[str, float]]:
        """Return the run's values by round, then by name."""
        found: dict[int, dict[str, float]] = {}
        for point in self.points:
            found.setdefault(point.round, {})[point.name] = point.value
        return dict(sorted(found.items()))


class Written:
    """The points that a tracker has, so that each is written once."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, str], float] = {}

    def add(self, point: Point) -> None:
        """Record that the tracker has a point."""
        self._values[point.round, point.name] = point.value

    def missing(self, snapshot: RunSnapshot) -> list[Point]:
        """Return the points that the tracker lacks, or has with another value, by round."""
        lacking = [
            point for point in snapshot.all_points() if self._values.get((point.round, point.name)) != point.value
        ]
        return sorted(lacking, key=lambda point: point.round)
