"""The layout of the tests: every module of 60 lines or more has a test file of its own, or a reason why not."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = (
    "common",
    "proto",
    "cli",
    "client",
    "export",
    "serving",
    "release",
    "edge_client",
    "coordinator",
    "experiments",
)
CONTRACT = ("common", "proto")
SMALL = 60  # lines
# Why a module has no test file of its own.
ELSEWHERE = {
    "their programs run in tests/release, tests/serving and tests/federation": (
        "cli/predict.py",
        "cli/release.py",
        "cli/serve.py",
        "experiments/cli.py",
        "experiments/demo.py",
        "experiments/fleet/simulate_command.py",
    ),
    "the commands that have these options run in tests/coordinator/cli": ("proto/transport/operator_options.py",),
    "they only declare": (
        "coordinator/observer.py",
        "coordinator/rounds/events.py",
        "coordinator/runs/handle.py",
        "coordinator/storage/db/tables.py",
        "serving/models/inference_request.py",
    ),
    "test_catalogue.py tests the papers' recipes together": (
        "experiments/papers/fedprox_recipes.py",
        "experiments/papers/fedssc_recipes.py",
        "experiments/papers/moon_figures.py",
        "experiments/papers/moon_tables.py",
        "experiments/papers/presets.py",
    ),
    "test_encodings.py tests the formats together": ("common/encodings/number_format.py",),
    "test_folder_targets.py reads texts": ("common/data/texts.py",),
    "test_predictor.py loads the files of models": ("edge_client/state/model_files.py",),
    "test_criteria.py and test_rounds.py test the criteria together": (
        "export/criteria/classification.py",
        "export/criteria/criterion.py",
        "export/criteria/regression.py",
        "export/criteria/segmentation.py",
    ),
    "test_build.py compares graphs with TorchScript": (
        "export/graph/container.py",
        "export/graph/rounds.py",
        "export/graph/tracer.py",
    ),
    "test_model_zoo.py tests the networks together": (
        "export/models/images.py",
        "export/models/segmentation.py",
        "export/models/sequences.py",
        "export/models/timm_networks.py",
    ),
    "test_scorers.py tests the tasks together": (
        "common/tasks/anomaly_detection.py",
        "common/tasks/classification.py",
        "common/tasks/multilabel.py",
        "common/tasks/regression.py",
        "common/tasks/segmentation.py",
    ),
    "test_codec.py tests the records together": (
        "proto/control/devices.py",
        "proto/control/evaluations.py",
        "proto/control/events.py",
        "proto/control/releases.py",
        "proto/control/runs.py",
    ),
    "tests/client runs both clients, and the synchronous one is generated": (
        "client/aio/channel.py",
        "client/aio/devices.py",
        "client/aio/releases.py",
        "client/aio/runs.py",
        "client/sync/devices.py",
        "client/sync/releases.py",
        "client/sync/runs.py",
        "client/sync/watch.py",
    ),
}


def modules() -> list[str]:
    """The modules that need tests, such as `edge_client/agent/session.py`; the contract's begin with its folder."""
    found = []
    for part in PARTS:
        root = ROOT / part / "moonfed" / ("" if part in CONTRACT else part)
        for file in root.rglob("*.py"):
            name = f"{part}/{file.relative_to(root).as_posix()}"
            if file.name != "__init__.py" and not name.startswith("proto/v1/"):
                found.append(name)
    return sorted(found)


def size(module: str) -> int:
    part, _, rest = module.partition("/")
    root = ROOT / part / "moonfed" / ("" if part in CONTRACT else part)
    return len((root / rest).read_text().splitlines())


def mirror_of(module: str) -> Path:
    path = ROOT / "tests" / module
    return path.with_name(f"test_{path.name}")


def test_every_module_has_its_own_test_file_or_a_reason_why_not() -> None:
    lacking = {module for module in modules() if size(module) >= SMALL and not mirror_of(module).exists()}
    assert lacking == {module for listed in ELSEWHERE.values() for module in listed}
