"""Runs every benchmark, or the named ones: `python -m benchmarks [device] [fleet]`. Results go to build/bench/."""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.device import measure_device
from benchmarks.fleet import measure_fleet
from benchmarks.report import Figure, print_table, write_report

OUTPUT = Path("build/bench")
BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {"device": measure_device, "fleet": measure_fleet}


def main() -> None:
    unknown = set(sys.argv[1:]) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"benchmark {unknown.pop()!r} is unknown; there are {', '.join(BENCHMARKS)}")
    for name in sys.argv[1:] or BENCHMARKS:
        figures = BENCHMARKS[name]()
        print_table(figures)
        write_report(OUTPUT / f"{name}.json", figures)


if __name__ == "__main__":
    main()
