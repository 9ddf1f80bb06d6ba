"""Runs every benchmark, or the named ones: `python -m benchmarks [NAME …]`. Results go to build/bench/NAME.json.

`device` is `cpu`, `cuda` and `footprint` in one report, `coordinator` has `encodings` in it; each can be named as well.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.cuda import measure_cuda
from benchmarks.device import measure_cpu, measure_device
from benchmarks.footprint import measure_footprint
from benchmarks.report import Figure, print_table, write_report

OUTPUT = Path("build/bench")
THREADS = 2  # of every CPU row that does not say otherwise


def measure_fleet() -> list[Figure]:
    from benchmarks import fleet  # needs all of moonfed, which a device with an accelerator may not have

    return fleet.measure_fleet()


def measure_coordinator() -> list[Figure]:
    from benchmarks import coordinator

    return [*coordinator.measure_coordinator(), *measure_encodings()]


def measure_encodings() -> list[Figure]:
    from benchmarks import encodings

    return encodings.measure_encodings()


def measure_serving() -> list[Figure]:
    from benchmarks import serving

    return serving.measure_serving()


BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "device": measure_device,
    "fleet": measure_fleet,
    "coordinator": measure_coordinator,
    "encodings": measure_encodings,
    "serving": measure_serving,
    "cpu": measure_cpu,
    "cuda": measure_cuda,
    "footprint": measure_footprint,
}
ALL = ("device", "fleet", "coordinator", "serving")


def main() -> None:
    unknown = set(sys.argv[1:]) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"benchmark {unknown.pop()!r} is unknown; there are {', '.join(BENCHMARKS)}")
    torch.set_num_threads(THREADS)
    for name in sys.argv[1:] or ALL:
        figures = BENCHMARKS[name]()
        print_table(figures)
        write_report(OUTPUT / f"{name}.json", figures)


if __name__ == "__main__":
    main()
