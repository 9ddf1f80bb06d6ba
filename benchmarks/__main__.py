"""Runs every benchmark: `python -m benchmarks`. Results go to build/bench/."""

from pathlib import Path

from benchmarks.device import measure_device
from benchmarks.report import print_table, write_report

OUTPUT = Path("build/bench")


def main() -> None:
    figures = measure_device()
    print_table(figures)
    write_report(OUTPUT / "device.json", figures)


if __name__ == "__main__":
    main()
