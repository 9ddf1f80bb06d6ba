"""Settings and marks of every test."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from moonfed.signing.key_files import KEYS_VARIABLE
from tests.support.forked_programs import forked_programs, fresh_programs
from tests.support.session_cache import CACHE
from tests.support.shared_operators import share_operators
from tests.support.signatures import write_keys
from tests.support.temporary_directory import use_memory

__all__ = ["forked_programs", "fresh_programs"]

# `make quick` leaves these out. Every part keeps tests outside this list.
SLOW = (
    "tests/benchmarks/",
    "tests/client/aio/",
    "tests/client/sync/",
    "tests/client/test_guide.py",
    "tests/coordinator/aggregation/test_robust_runs.py",
    "tests/coordinator/cli/test_audit.py",
    "tests/coordinator/cli/test_console.py",
    "tests/coordinator/cli/test_control_client.py",
    "tests/coordinator/cli/test_program.py",
    "tests/coordinator/cli/test_run_evaluate.py",
    "tests/coordinator/cli/test_run_export.py",
    "tests/coordinator/cli/test_run_start.py",
    "tests/coordinator/cli/test_runs.py",
    "tests/coordinator/console/test_access.py",
    "tests/coordinator/console/test_actions.py",
    "tests/coordinator/console/test_app.py",
    "tests/coordinator/console/test_control.py",
    "tests/coordinator/console/test_fleet_api.py",
    "tests/coordinator/console/test_live.py",
    "tests/coordinator/console/test_model_api.py",
    "tests/coordinator/console/test_pages.py",
    "tests/coordinator/console/test_run_api.py",
    "tests/coordinator/console/test_security.py",
    "tests/coordinator/console/test_server.py",
    "tests/coordinator/console/test_session_api.py",
    "tests/coordinator/deployments/test_properties.py",
    "tests/coordinator/devices/test_liveness.py",
    "tests/coordinator/replicas/test_monitor.py",
    "tests/coordinator/rpc/test_flow_control.py",
    "tests/coordinator/runs/test_asynchronous_runs.py",
    "tests/coordinator/runs/test_close_round.py",
    "tests/coordinator/runs/test_follower.py",
    "tests/coordinator/runs/test_metric_means.py",
    "tests/coordinator/runs/test_replacement.py",
    "tests/coordinator/runs/test_suspended.py",
    "tests/coordinator/storage/blobs/test_blob_store.py",
    "tests/coordinator/storage/blobs/test_object_client.py",
    "tests/coordinator/storage/blobs/test_object_store.py",
    "tests/coordinator/storage/blobs/test_ownership.py",
    "tests/coordinator/storage/blobs/test_pins.py",
    "tests/coordinator/storage/test_opening.py",
    "tests/coordinator/storage/test_recovery.py",
    "tests/coordinator/storage/test_shared_spool.py",
    "tests/coordinator/storage/test_spool.py",
    "tests/coordinator/storage/test_state_directory.py",
    "tests/coordinator/test_server.py",
    "tests/coordinator/trackers/test_mlflow_tracker.py",
    "tests/coordinator/trackers/test_wandb_tracker.py",
    "tests/coordinator/webhooks/test_sender.py",
    "tests/deploy/test_images.py",
    "tests/deploy/test_kserve.py",
    "tests/deploy/test_monitoring.py",
    "tests/deploy/test_wheel.py",
    "tests/edge_client/agent/test_bundle_trust.py",
    "tests/edge_client/agent/test_compatibility.py",
    "tests/edge_client/agent/test_enrolment.py",
    "tests/edge_client/agent/test_evaluation.py",
    "tests/edge_client/agent/test_floods.py",
    "tests/edge_client/agent/test_proxies.py",
    "tests/edge_client/agent/test_releases.py",
    "tests/edge_client/agent/test_session.py",
    "tests/edge_client/agent/test_stopping.py",
    "tests/edge_client/agent/test_training_hours.py",
    "tests/edge_client/agent/test_worker_process.py",
    "tests/edge_client/profile/",
    "tests/edge_client/resources/test_memory_estimate.py",
    "tests/edge_client/state/test_releases.py",
    "tests/edge_client/test_attacks.py",
    "tests/edge_client/test_imports.py",
    "tests/edge_client/test_predict.py",
    "tests/edge_client/test_served_repository.py",
    "tests/edge_client/worker/test_sandboxed_plans.py",
    "tests/experiments/fleet/",
    "tests/experiments/papers/test_embedding.py",
    "tests/experiments/papers/test_reproduce_command.py::test_a_quick_recipe_runs_to_its_end_and_another_takes_its_simulations",
    "tests/experiments/test_new_project.py",
    "tests/export/cli/test_bundle.py",
    "tests/export/cli/test_hostile_plans.py",
    "tests/export/cli/test_keys.py",
    "tests/export/cli/test_program.py",
    "tests/export/test_archive.py",
    "tests/export/test_binding.py",
    "tests/export/test_build.py",
    "tests/export/test_bundle_builder.py",
    "tests/export/test_bundle_recipe.py",
    "tests/export/test_catalogue.py",
    "tests/export/test_inspection.py",
    "tests/export/test_loss_scale.py",
    "tests/export/test_model_zoo.py::test_torchvision_imports_in_a_new_process_without_a_warning",
    "tests/export/test_onnx_graph.py",
    "tests/export/test_plan_capture.py",
    "tests/export/test_plan_precision.py",
    "tests/export/test_self_checks.py",
    "tests/export/test_training_plan.py::test_two_steps_of_the_zoos_resnet_equal_eager_training",
    "tests/faults/test_asynchronous_kills.py",
    "tests/faults/test_attacks.py",
    "tests/faults/test_backup.py",
    "tests/faults/test_bad_network.py",
    "tests/faults/test_clock.py",
    "tests/faults/test_evaluation_kills.py",
    "tests/faults/test_failpoints.py",
    "tests/faults/test_malicious_coordinator.py",
    "tests/faults/test_power_loss.py",
    "tests/faults/test_sigkill_loop.py",
    "tests/faults/test_state_machine.py",
    "tests/federation/test_administration.py",
    "tests/federation/test_demo.py",
    "tests/federation/test_eligibility.py",
    "tests/federation/test_evaluation.py",
    "tests/federation/test_extensions.py",
    "tests/federation/test_federation.py",
    "tests/federation/test_fleets.py",
    "tests/federation/test_predictions.py",
    "tests/federation/test_recipe.py",
    "tests/federation/test_secret_draw.py",
    "tests/federation/test_signing.py",
    "tests/federation/test_simulation.py",
    "tests/federation/test_tables.py",
    "tests/federation/test_tracing.py",
    "tests/federation/test_tutorials.py",
    "tests/federation/test_user_defined_models.py",
    "tests/common/plan/inspection/test_operators.py::test_the_generated_list_is_up_to_date",
    "tests/common/observability/test_otlp.py::test_an_absent_collector_is_logged_once_and_so_is_its_return",
    "tests/release/test_classifiers.py",
    "tests/release/test_convert.py",
    "tests/release/test_documentation.py",
    "tests/release/test_follow.py",
    "tests/release/test_model_file.py",
    "tests/release/test_publish.py",
    "tests/release/test_released_on_triton.py",
    "tests/release/test_served_releases.py",
    "tests/release/test_signing.py",
    "tests/release/test_variant_report.py",
    "tests/release/test_variants.py",
    "tests/replicas/test_deploy.py",
    "tests/replicas/test_evaluations.py",
    "tests/replicas/test_own_leases.py",
    "tests/replicas/test_releases.py",
    "tests/replicas/test_revocation.py",
    "tests/replicas/test_two_replicas.py",
    "tests/serving/test_against_triton.py",
    "tests/serving/test_attacks.py",
    "tests/serving/test_kserve_client.py",
    "tests/serving/test_readme.py",
    "tests/serving/test_server_lifecycle.py",
    "tests/test_notebook.py",
)
SHARED = pytest.StashKey[bool]()  # True once the operators of ONNX graphs are shared

# The same examples everywhere, so that a commit passes or fails on every machine alike, however busy that one is.
settings.register_profile("moonfed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moonfed")


def pytest_configure(config: pytest.Config) -> None:
    """Store compiled modules, and make the directory of keys, plans and bundles that both test processes share."""
    # The programs that tests start import hundreds of modules: let only the first one compile them.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if CACHE not in os.environ:
        use_memory()
        os.environ[CACHE] = tempfile.mkdtemp(prefix="moonfed-tests-")
        write_keys(Path(os.environ[CACHE]) / "keys")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE)))
    os.environ[KEYS_VARIABLE] = str(Path(os.environ[CACHE]) / "keys")


def pytest_collection() -> None:
    """Collect no garbage while tests are collected, of which all objects remain."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was collected, millions of objects, from garbage collection, and make full collections rare."""
    gc.freeze()
    gc.set_threshold(700, 10, 40)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make quick` excludes; begin with a long one that would be the last."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not item.nodeid.startswith("tests/test_notebook.py"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Undo the level of our log that a command set which an earlier test ran; share what exports would register."""
    logging.getLogger("moonfed").setLevel(logging.NOTSET)
    if not item.config.stash.get(SHARED, False):
        item.config.stash[SHARED] = share_operators()
