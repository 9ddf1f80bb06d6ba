from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from moonfed.edge_client.metrics_file import DeviceState, LastRound, exposition, require_metrics_file
from moonfed.edge_client.resources.board_sensors import Reading
from moonfed.errors import InvalidInput, NotFound
from tests.support.prometheus import documented, exposed
from tests.support.refusals import refused

EVERYTHING = DeviceState(
    connected=True,
    written=1_790_000_000.5,
    rounds={"counted": 3, "late": 1},
    last=LastRound(round=12, seconds=4.25, loss=0.5, ended=1_790_000_000.125),
    temperatures=[Reading("thermal_zone0", 'a "hot"\\zone\n', 48.5)],
    powers=[Reading("hwmon3/1", "VDD_GPU_SOC", 9.5)],
)


def samples(state: DeviceState) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name.removeprefix("moonfed_device_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(state))
        for sample in family.samples
    }


def test_prometheus_own_parser_reads_the_text() -> None:
    found = samples(EVERYTHING)
    assert found["connected", ()] == 1
    assert found["rounds_total", (("outcome", "counted"),)] == 3
    assert found["rounds_total", (("outcome", "declined"),)] == 0
    assert found["last_round", ()] == 12
    assert found["last_round_seconds", ()] == 4.25
    assert found["last_round_loss", ()] == 0.5
    assert found["last_round_timestamp_seconds", ()] == 1_790_000_000.125
    assert found["metrics_timestamp_seconds", ()] == 1_790_000_000.5
    assert found["power_watts", (("name", "VDD_GPU_SOC"), ("sensor", "hwmon3/1"))] == 9.5
    assert found["temperature_celsius", (("name", 'a "hot"\\zone\n'), ("sensor", "thermal_zone0"))] == 48.5


def test_what_is_unknown_is_absent() -> None:
    found = samples(DeviceState(connected=False, written=1.0, rounds={}))
    assert {name for name, _ in found} == {"connected", "rounds_total", "metrics_timestamp_seconds"}
    assert found["connected", ()] == 0


def test_the_table_in_the_documentation_is_what_is_written() -> None:
    assert documented(of_devices=True) == exposed(exposition(EVERYTHING))


def test_the_file_must_be_one_that_node_exporter_reads(tmp_path: Path) -> None:
    require_metrics_file(str(tmp_path / "moonfed.prom"))
    with refused(InvalidInput, "metrics-file"):
        require_metrics_file(str(tmp_path / "moonfed.txt"))
    with refused(InvalidInput, "metrics-file"):
        require_metrics_file("/proc/self/moonfed.prom")
    with refused(NotFound, "metrics-file"):
        require_metrics_file(str(tmp_path / "absent" / "moonfed.prom"))
