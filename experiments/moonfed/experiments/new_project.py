"""A new project: a model, a data loader, a recipe, and a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

from moonfed.errors import InvalidInput
from moonfed.files import new_directory

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

MODEL = '''"""The model."""

from torch import nn


def build(shape, classes):
    """Return encoder, projection head and output layer for samples of that shape."""
    (features,) = shape
    encoder = nn.Sequential(nn.Linear(features, 32), nn.ReLU())
    return encoder, nn.Identity(), nn.Linear(32, classes)
'''

DATA = '''"""The samples; replace them with your own."""

import numpy as np


def load(input_spec, class_names):
    """Return inputs [N, width] as float32, and targets [N] as positions in `class_names`.

    Targets of other tasks are values [N, T], labels [N, L] or masks [N, height, width].
    """
    generator = np.random.default_rng(0)
    labels = generator.integers(len(class_names), size=1000)
    centres = np.eye(len(class_names), *input_spec.shape)[labels] * 3
    return (centres + generator.normal(size=centres.shape)).astype(np.float32), labels
'''

RECIPE = """# The settings of the run, for `run start --recipe` and for simulations.
rounds = 3
cohort = "50%"
quorum = "80%"
seed = 0

# The fleet that it is simulated on; `run start` ignores these.
parties = 10
beta = 0.5
dropouts = 0.1
stragglers = 0.2
"""

TEST = '''"""The project end to end: a bundle is built, and the simulated run learns."""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent


def run(program, *words):
    """Run a program of moonfed in the project."""
    subprocess.run([Path(sys.executable).with_name(program), *words], cwd=PROJECT, check=True)


def test_the_simulated_run_learns(tmp_path):
    bundle, simulated = tmp_path / "bundle", tmp_path / "simulated"
    options = ["--model", "model:build", "--input", "features:4", "--classes", "a,b,c", "--set", "epochs=2"]
    run("moonfed-export", "bundle", *options, "--output", bundle)
    words = ["recipe.toml", "--bundle", bundle, "--data", "data:load", "--output", simulated]
    run("moonfed-experiments", "simulate", *words)
    assert json.loads((simulated / "summary.json").read_text())["accuracy"] > 0.6
'''

README = """# {name}

| file | content |
| --- | --- |
| `model.py` | the network |
| `data.py` | the samples; or a CSV file, folders of images, or an `.npz` file with `inputs` and `targets` |
| `recipe.toml` | the settings of the run, and the fleet that it is simulated on |
| `test_project.py` | builds the bundle, simulates the run, and expects a model that has learned; run it with `pytest` |

```sh
moonfed-export bundle --model model:build --input features:4 --classes a,b,c --set epochs=2 --output bundle
moonfed-experiments simulate recipe.toml --bundle bundle --data data:load --output simulated
moonfed-coordinator run start bundle --recipe simulated/recipe.toml
```

The last command needs a coordinator, and devices that were started with their own samples
(`moonfed-client run --data …`).
"""

FILES = {"model.py": MODEL, "data.py": DATA, "recipe.toml": RECIPE, "test_project.py": TEST, "README.md": README}


def write_project(directory: Path) -> list[Path]:
    """Write a project; the directory appears complete or not at all. InvalidInput if it exists or has an odd name."""
    if not NAME.fullmatch(directory.name):
        raise InvalidInput(field="name", value=directory.name, allowed="letters, digits, - and _")
    if directory.exists():
        raise InvalidInput(field="name", value=directory, rest=", which exists; name a new directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(directory.absolute()) as temporary:
        for name, text in FILES.items():
            (temporary / name).write_text(text.replace("{name}", directory.name))
    return [directory / name for name in FILES]
