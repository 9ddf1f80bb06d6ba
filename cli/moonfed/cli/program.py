"""moonfed-export: builds bundles, scores a run's models, writes them as checked ONNX files, and serves them.

Heavy dependencies are imported by the command that needs them.
"""

from __future__ import annotations

import sys

from moonfed.cli.bundle import bundle, inspect, methods
from moonfed.cli.columns import columns
from moonfed.cli.evaluate import evaluate
from moonfed.cli.keys import keys_app, sign
from moonfed.cli.onnx import onnx
from moonfed.cli.options import PROGRAM
from moonfed.cli.predict import predict
from moonfed.cli.release import follow, repository, roll_back, sign_release
from moonfed.cli.release_create import release_app
from moonfed.cli.serve import api_key, serve
from moonfed.command_line.programs import new_app, run_program

HELP = """Compile models for a fleet of devices, score a run's models, write them as ONNX, release and serve them.

\b
Example:
  moonfed-export bundle --model cnn --input 8x8x1 --classes 10 --method moon --output digits-bundle
  moonfed-export evaluate digits --data test.npz --follow
  moonfed-export onnx digits --data test.npz --output digits.onnx
  moonfed-export repository digits --data test.npz --name digits --output models
  moonfed-export serve models
"""

app = new_app(HELP)
for command in (
    columns,
    bundle,
    methods,
    inspect,
    sign,
    evaluate,
    onnx,
    repository,
    follow,
    roll_back,
    sign_release,
    serve,
    api_key,
    predict,
):
    app.command()(command)
app.add_typer(keys_app, name="keys")
app.add_typer(release_app, name="release")


def main() -> None:
    """Run the program."""
    run_program(app, PROGRAM, extra="serve" if sys.argv[1:2] in (["serve"], ["api-key"]) else "export")
