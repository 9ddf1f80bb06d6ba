"""A tree like Linux's sysfs, with the sensors of a Jetson."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "class/thermal/thermal_zone0/type": "CPU-therm\n",
    "class/thermal/thermal_zone0/temp": "48500\n",
    "class/thermal/thermal_zone1/type": "GPU-therm\n",
    "class/thermal/thermal_zone1/temp": "46000\n",
    "class/thermal/thermal_zone2/type": "CV0-therm\n",  # of a part that is off: it cannot be read
    "class/hwmon/hwmon3/name": "ina3221\n",
    "class/hwmon/hwmon3/in1_label": "VDD_GPU_SOC\n",
    "class/hwmon/hwmon3/in1_input": "19000\n",
    "class/hwmon/hwmon3/curr1_input": "500\n",
    "class/hwmon/hwmon3/in2_label": "VDD_CPU_CV\n",
    "class/hwmon/hwmon3/in2_input": "19000\n",
    "class/hwmon/hwmon3/curr2_input": "40\n",
    "class/hwmon/hwmon3/in3_label": "NC\n",  # not connected, and without a current
    "class/hwmon/hwmon3/in7_label": "sum of shunt voltages\n",
    "class/hwmon/hwmon3/in7_input": "7\n",
    "class/hwmon/hwmon3/curr4_input": "540\n",
    "class/hwmon/hwmon4/name": "pwmfan\n",
}


def jetson(root: Path) -> Path:
    """Make the tree; return its root."""
    for name, content in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (root / "class/thermal/thermal_zone2/temp").mkdir()  # reading a directory fails, as reading such a sensor does
    return root
