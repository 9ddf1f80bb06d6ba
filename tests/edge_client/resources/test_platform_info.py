"""Platform information from files of real systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.edge_client.resources.platform_info import cuda_of_torch, hardware

MEMINFO = "MemTotal:        7802492 kB\nMemFree:         1612340 kB\nMemAvailable:    5312000 kB\n"
JETSON = {
    "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\n',
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, "
    "DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n",
    "proc/meminfo": MEMINFO,
    "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\nCPU implementer\t: 0x41\n",
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  "
    "(buildbrain@mobile-u64-6336-d8000)  Tue Jan  7 17:35:12 PST 2025\n",
    "var/lib/dpkg/status": "Package: nvidia-jetpack-runtime\nStatus: install ok installed\nVersion: 1\n\n"
    "Package: nvidia-jetpack\nStatus: install ok installed\nPriority: standard\nArchitecture: arm64\n"
    "Version: 6.2+b77\nDescription: NVIDIA Jetpack Meta Package\n\n",
}
WORKSTATION = {
    "proc/meminfo": "MemTotal:       131900000 kB\n",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9534\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32\n"
    "GCC version:  gcc version 11.4.0\n",
    "proc/driver/nvidia/gpus/0000:62:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 10\n"
    "GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b\nVideo BIOS: \t 96.00.99.00.01\n",
    "proc/driver/nvidia/gpus/0000:63:00.0/information": "Model: \t\t NVIDIA L4\nIRQ:   \t\t 11\n",
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_a_jetson_reports_its_board_jetpack_and_driver(tmp_path: Path) -> None:
    found = hardware(tree(tmp_path, JETSON))
    board = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
    assert (found["gpu"], found["processor"], found["jetpack"]) == (board, board, "6.2+b77")
    assert (found["driver"], found["system"]) == ("540.4.0", "Ubuntu 22.04.5 LTS")
    assert found["memory"] == str(7802492 * 1024)


@pytest.mark.parametrize(
    "status",
    [
        None,
        JETSON["var/lib/dpkg/status"].replace(
            "nvidia-jetpack\nStatus: install ok installed", "nvidia-jetpack\nStatus: deinstall ok config-files"
        ),
    ],
)
def test_a_jetson_without_a_complete_jetpack_reports_its_l4t(tmp_path: Path, status: str | None) -> None:
    files = {name: content for name, content in JETSON.items() if "dpkg" not in name}
    found = hardware(tree(tmp_path, files if status is None else {**files, "var/lib/dpkg/status": status}))
    assert found["jetpack"] == "L4T 36.4.3"


def test_an_older_jetson_writes_its_release_without_a_space(tmp_path: Path) -> None:
    found = hardware(tree(tmp_path, {"etc/nv_tegra_release": "# R32(release), REVISION: 6.1, GCID: 27863751\n"}))
    assert found["jetpack"] == "L4T 32.6.1"


def test_a_workstation_reports_its_gpus_and_driver(tmp_path: Path) -> None:
    found = hardware(tree(tmp_path, WORKSTATION))
    assert (found["gpu"], found["driver"]) == ("NVIDIA H100 80GB HBM3, NVIDIA L4", "535.129.03")
    assert found["processor"] == "AMD EPYC 9534"
    assert "jetpack" not in found


def test_an_unknown_machine_omits_what_is_unknown(tmp_path: Path) -> None:
    assert set(hardware(tmp_path)) <= {"architecture", "system"}


def test_values_respect_the_coordinators_limits(tmp_path: Path) -> None:
    strange = {"proc/device-tree/model": "x" * 500 + "\x07", "proc/cpuinfo": ""}
    assert all(len(word) <= 200 and word.isprintable() for word in hardware(tree(tmp_path, strange)).values())


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = None", ""),
        ("cuda: Optional[str] = '12.6'", "12.6"),
        ("cuda = '11.4'", "11.4"),
        ("cuda: str | None = '13.0'", "13.0"),
    ],
)
def test_torchs_cuda_version_is_read_from_its_folder(tmp_path: Path, line: str, cuda: str) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2.8.0'\ndebug = False\n{line}\ngit_version = 'ab'\n")
    assert cuda_of_torch(tmp_path) == cuda
