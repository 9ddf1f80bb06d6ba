from __future__ import annotations

from pathlib import Path

from moonfed.edge_client.resources.board_sensors import Reading, powers, temperatures
from tests.support.sysfs import jetson


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def test_a_jetsons_thermal_zones_without_the_one_that_is_off(tmp_path: Path) -> None:
    assert temperatures(jetson(tmp_path)) == [
        Reading("thermal_zone0", "CPU-therm", 48.5),
        Reading("thermal_zone1", "GPU-therm", 46.0),
    ]


def test_a_jetsons_rails_are_volts_times_amperes_without_sums_and_open_channels(tmp_path: Path) -> None:
    assert powers(jetson(tmp_path)) == [
        Reading("hwmon3/1", "VDD_GPU_SOC", 9.5),
        Reading("hwmon3/2", "VDD_CPU_CV", 0.76),
    ]


def test_the_rails_of_an_older_jetpack(tmp_path: Path) -> None:
    device = "bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    found = powers(
        write(
            tmp_path,
            {
                f"{device}/rail_name_0": "POM_5V_IN\n",
                f"{device}/in_power0_input": "2140\n",
                f"{device}/rail_name_1": "X\n",
            },
        )
    )
    assert found == [Reading("6-0040/iio:device0/0", "POM_5V_IN", 2.14)]


def test_another_power_monitor(tmp_path: Path) -> None:
    monitor = "class/hwmon/hwmon0"
    found = powers(write(tmp_path, {f"{monitor}/name": "ina226\n", f"{monitor}/power1_input": "12500000\n"}))
    assert found == [Reading("hwmon0/1", "ina226", 12.5)]


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    zone = "class/thermal/thermal_zone0"
    assert temperatures(write(tmp_path, {f"{zone}/temp": "unknown\n", f"{zone}/type": "CPU\n"})) == []


def test_a_board_without_sensors(tmp_path: Path) -> None:
    assert temperatures(tmp_path) == powers(tmp_path) == []


def test_this_machine_can_be_read() -> None:
    assert all(-50 < one.value < 150 for one in temperatures())
    assert all(one.value >= 0 for one in powers())
