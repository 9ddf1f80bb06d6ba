"""The map of the faults that docs/faults.md lists: which tests fail when the defence against one is taken out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from moonfed.coordinator.cli.program import app

TESTS_DIRECTORY = Path(__file__).parents[1]
DOCUMENT = TESTS_DIRECTORY.parent / "docs" / "faults.md"
COMMON = {"--help", "--json", "--identity", "--coordinator"}  # of most commands
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)
TESTS: dict[int, list[str]] = {
    1: [
        "coordinator.storage.test_store::test_a_round_that_was_being_reduced_goes_on_with_that",
        "coordinator.test_server::test_a_killed_coordinator_goes_on_in_the_middle_of_a_round_and_between_rounds",
        "faults.test_asynchronous_kills::test_each_acknowledged_update_counts_once_with_its_base_over_many_kills",
        "faults.test_sigkill_loop::test_a_run_over_many_kills_ends_with_the_undisturbed_model",
        "faults.test_sigkill_loop::test_so_does_one_on_a_database_server_and_an_object_store",
        "faults.test_state_machine::test_every_acknowledged_update_counts_once_whatever_happens",
    ],
    2: [
        "coordinator.storage.test_transient_errors::test_a_commit_whose_confirmation_was_lost_counts_once",
        "coordinator.storage.test_recovery::test_killed_between_the_abandonment_and_the_end_of_its_spool",
        "coordinator.storage.test_recovery::test_killed_between_the_spooled_update_and_its_receipt",
        "coordinator.storage.test_recovery::test_killed_while_reducing_before_the_commit",
        "coordinator.updates.test_submission::test_a_full_disk_gives_no_receipt_and_the_update_counts_when_space_returns",
        "faults.test_failpoints::test_a_kill_as_a_round_is_abandoned_leaves_it_open_or_abandoned",
        "faults.test_failpoints::test_a_kill_as_a_run_starts_leaves_none_or_one",
        "faults.test_failpoints::test_a_kill_as_leases_are_inherited_leaves_nobody_waiting_for_their_end",
        "faults.test_failpoints::test_a_kill_before_or_after_any_commit_point_costs_no_update",
        "faults.test_failpoints::test_no_more_does_a_server_that_is_away_for_a_moment",
        "faults.test_failpoints::test_no_more_does_one_on_a_database_server_and_an_object_store",
        "faults.test_state_machine::test_every_acknowledged_update_counts_once_whatever_happens",
    ],
    3: [
        "coordinator.storage.db.test_postgres::test_its_commits_are_durable_whatever_the_servers_default",
        "coordinator.storage.db.test_sqlite::test_it_is_durable_against_power_loss",
        "faults.test_power_loss::test_what_was_acknowledged_survives_a_power_loss",
    ],
    4: [
        "coordinator.devices.test_liveness::test_a_device_that_is_stuck_is_lost_and_one_that_trains_slowly_is_not",
        "coordinator.updates.test_submission::test_an_upload_goes_on_where_it_broke_off",
        "coordinator.updates.test_submission::test_a_device_that_dies_in_mid_upload_can_go_on",
        "coordinator.updates.test_submission::test_an_upload_ends_with_its_round",
        "coordinator.test_server::test_an_upload_is_resumed_after_a_kill",
        "faults.test_bad_network::test_a_run_over_a_bad_network_ends_with_the_undisturbed_model",
    ],
    5: [
        "coordinator.updates.test_submission::test_all_the_bytes_without_a_commit_do_not_count",
        "coordinator.updates.test_submission::test_a_device_that_dies_in_mid_upload_can_go_on",
        "coordinator.updates.test_submission::test_bytes_that_are_not_what_was_declared_do_not_count",
        "proto.test_blobs::test_too_few_bytes_are_not_a_blob_but_stay_for_a_resume",
    ],
    6: [
        "coordinator.updates.test_submission::test_the_same_update_again_gets_the_same_receipt_and_counts_once",
        "coordinator.updates.test_submission::test_who_comes_back_while_its_update_is_taken_gets_its_receipt",
        "replicas.test_shared_rounds::test_the_same_update_at_two_replicas_at_once_counts_once",
    ],
    7: [
        "coordinator.updates.test_submission::test_a_different_second_update_is_rejected_and_the_first_stands",
        "replicas.test_shared_rounds::test_of_two_different_updates_at_two_replicas_at_once_one_stands",
    ],
    8: ["coordinator.updates.test_submission::test_a_stale_round_is_rejected_with_the_present_one"],
    9: [
        "coordinator.devices.test_liveness::test_a_straggler_of_a_closed_round_gets_the_status_and_the_metadata",
        "coordinator.devices.test_liveness::"
        "test_an_over_selected_round_goes_on_without_the_slowest_who_is_told_retry_advice",
        "coordinator.devices.test_liveness::"
        "test_who_comes_while_the_round_is_reduced_is_told_retry_advice_and_does_not_count",
        "edge_client.agent.test_stopping::test_a_device_logs_when_it_may_be_needed_again",
    ],
    10: [
        "coordinator.rounds.test_synchronous::test_a_round_without_quorum_is_abandoned_and_tried_again",
        "coordinator.rounds.test_synchronous::test_a_round_rests_longer_after_each_attempt_that_was_abandoned",
        "coordinator.rounds.test_synchronous::test_retries_grow_and_are_capped",
        "coordinator.updates.test_submission::test_a_round_without_quorum_leaves_the_model_unchanged_and_is_tried_again",
    ],
    11: [
        "coordinator.updates.test_submission::test_a_bad_update_is_rejected_by_name_and_the_round_goes_on",
        "proto.test_tensors::test_a_value_that_is_not_finite_is_rejected_by_tensor",
    ],
    12: [
        "coordinator.aggregation.test_robust_runs::test_a_weight_cap_bounds_a_device_that_claims_ten_million_samples",
        "coordinator.updates.test_submission::test_a_senseless_header_is_rejected_before_the_bytes",
    ],
    13: [
        "coordinator.updates.test_submission::test_a_bad_update_is_rejected_by_name_and_the_round_goes_on",
        "proto.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name",
    ],
    14: [
        "coordinator.updates.test_submission::test_a_bad_update_is_rejected_by_name_and_the_round_goes_on",
        "proto.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name",
    ],
    15: ["proto.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name"],
    16: ["coordinator.runs.test_exchanged_roles::test_a_bad_file_is_rejected_by_role_and_tensor"],
    17: [
        "coordinator.updates.test_submission::"
        "test_a_device_that_sends_too_many_bytes_for_one_round_is_stopped_and_the_others_are_not",
        "coordinator.updates.test_submission::test_a_senseless_header_is_rejected_before_the_bytes",
        "proto.test_blobs::test_more_than_the_declared_size_is_rejected",
    ],
    18: [
        "proto.test_encodings::test_a_decompression_bomb_stops_at_the_size_that_a_model_has",
        "coordinator.updates.test_codec::test_what_is_no_such_model_is_rejected_and_the_round_goes_on",
    ],
    19: [
        "coordinator.updates.test_submission::test_a_device_that_falls_silent_in_mid_upload_is_told_to_come_again",
        "coordinator.rpc.test_flow_control::test_a_stream_that_falls_silent_or_never_ends_times_out",
    ],
    20: [
        "coordinator.rpc.test_rate_limit::test_a_caller_may_make_a_burst_of_calls_and_then_so_many_a_second",
        "coordinator.rpc.test_rate_limit::test_a_flood_is_turned_away_while_health_operators_and_other_devices_are_served",
        "coordinator.rpc.test_rate_limit::test_calls_at_once_are_bounded_for_one_and_for_all",
    ],
    21: [
        "coordinator.updates.test_submission::test_a_full_disk_gives_no_receipt_and_the_update_counts_when_space_returns",
        "coordinator.storage.test_transient_errors::"
        "test_a_round_waits_for_a_trouble_to_pass_and_counts_what_was_acknowledged",
        "coordinator.updates.test_submission::test_what_could_not_be_kept_does_not_count_against_its_device",
        "coordinator.storage.test_transient_errors::"
        "test_a_run_whose_files_cannot_be_had_at_the_start_goes_on_once_they_can",
        "coordinator.storage.test_transient_errors::"
        "test_a_round_waits_for_an_object_store_that_fails_while_it_is_reduced",
        "faults.test_failpoints::test_a_disk_that_is_full_for_a_moment_costs_no_update_and_no_restart",
    ],
    22: [
        "coordinator.storage.test_recovery::test_a_damaged_spooled_update_counts_as_rejected_and_the_others_are_merged",
        "coordinator.storage.test_recovery::test_a_run_with_a_damaged_file_is_suspended_and_the_others_go_on",
        "coordinator.runs.test_rollback::test_a_damaged_file_of_the_newest_global_state_gives_way_to_the_one_before_it",
        "coordinator.runs.test_rollback::test_damage_in_mid_round_makes_no_model_and_the_run_goes_on_without_a_restart",
        "coordinator.runs.test_rollback::test_without_a_whole_state_before_it_the_run_is_suspended",
    ],
    23: [
        "coordinator.storage.db.test_sqlite::test_a_damaged_database_is_not_started_on",
        "coordinator.storage.db.test_sqlite::"
        "test_a_database_that_is_damaged_where_nobody_looks_at_first_is_not_started_on",
        "coordinator.test_server::test_a_database_that_is_gone_or_damaged_is_not_replaced",
        "coordinator.storage.db.test_postgres::test_tables_that_have_gone_are_not_made_anew",
    ],
    24: [
        "faults.test_clock::test_a_round_waits_for_as_long_as_it_was_told",
        "faults.test_clock::test_rounds_go_their_way_and_no_round_took_less_than_no_time",
    ],
    31: [
        "coordinator.aggregation.test_robust_runs::test_robust_aggregation_keeps_the_model_and_names_the_poisoned_devices",
        "coordinator.aggregation.test_robust_prototypes::"
        "test_a_class_mean_is_no_longer_than_a_multiple_of_the_median_of_its_sharers",
        "coordinator.aggregation.test_robust_prototypes::test_a_poisoned_class_mean_moves_no_prototype_and_is_told",
        "coordinator.aggregation.test_robust_runs::test_a_norm_clip_bounds_how_far_poisoned_devices_get",
    ],
    34: [
        "coordinator.test_server::test_a_coordinator_imports_no_torch_no_runtime_and_no_export",
        "faults.test_decoders::test_what_would_run_if_it_were_loaded_is_rejected_unopened",
    ],
    35: [
        "coordinator.rpc.test_authentication::test_a_device_that_cannot_run_the_plan_is_told_and_not_drawn",
        "coordinator.rpc.test_authentication::test_another_major_version_of_the_contract_is_rejected_with_both_versions",
        "edge_client.agent.test_compatibility::test_a_plan_that_needs_newer_things_is_not_run",
    ],
    36: [
        "coordinator.storage.db.test_sqlite::test_any_other_schema_is_rejected_with_both_versions",
        "coordinator.storage.test_recovery::test_a_run_with_a_damaged_file_is_suspended_and_the_others_go_on",
    ],
    37: [
        "coordinator.storage.blobs.test_ownership::test_a_second_coordinator_with_blobs_of_its_own_does_not_start",
        "replicas.test_own_leases::test_a_copy_of_a_directory_takes_the_runs_and_the_original_follows",
        "replicas.test_shared_rounds::test_only_the_holder_closes_a_round",
        "replicas.test_shared_rounds::test_what_a_follower_takes_before_the_round_closes_is_among_what_is_reduced",
        "replicas.test_shared_rounds::test_what_a_follower_would_take_after_the_round_has_closed_gets_no_receipt",
        "replicas.test_two_replicas::test_the_holder_is_paused_beyond_its_lease",
        "coordinator.storage.db.test_postgres::test_a_lease_that_ran_out_commits_nothing_even_if_nobody_took_it",
        "coordinator.storage.db.test_postgres::test_a_lease_that_ran_out_is_taken_over_and_its_old_holder_cannot_commit",
        "coordinator.storage.db.test_postgres::test_only_the_holder_of_a_runs_lease_changes_it",
        "coordinator.storage.test_recovery::test_one_coordinator_at_a_time",
        "coordinator.test_server::test_a_second_coordinator_on_one_state_and_on_one_port_is_rejected",
    ],
    38: [
        "edge_client.agent.test_session::test_a_coordinator_that_goes_away_in_mid_round_gets_the_update_when_it_is_back",
        "edge_client.agent.test_session::test_an_update_that_was_not_acknowledged_is_submitted_after_a_restart_without_training",
        "edge_client.agent.test_executor::test_a_rejected_update_is_not_sent_again",
        "edge_client.agent.test_executor::test_an_update_waits_until_the_coordinators_trouble_has_passed",
        "faults.test_bad_network::test_a_run_over_a_bad_network_ends_with_the_undisturbed_model",
        "proto.test_transport::test_a_connection_that_breaks_right_after_the_handshake_is_no_reason_to_give_up",
        "proto.test_transport::test_backoff_grows_is_capped_and_starts_again",
        "proto.test_transport::test_devices_that_lost_their_coordinator_together_do_not_come_back_together",
    ],
}


def test_every_fault_of_the_document_has_its_tests() -> None:
    assert sorted(int(number) for number in ROW.findall(DOCUMENT.read_text())) == sorted(TESTS)
    assert [number for number, tests in TESTS.items() if not tests] == []


@pytest.mark.parametrize("command", [["serve"], ["run", "start"]])
def test_the_operators_guide_knows_every_setting(command: list[str]) -> None:
    guide = (DOCUMENT.parent / "operations.md").read_text()
    found: Any = get_command(app)
    for word in command:
        found = found.commands[word]
    settings = {name for parameter in found.params for name in parameter.opts if name.startswith("--")}
    assert {name for name in settings - COMMON if f"`{name}`" not in guide} == set()


def test_the_operators_guide_knows_every_line_that_asks_for_something() -> None:
    """By the pieces of each line that are the same whatever happened."""
    guide = " ".join((DOCUMENT.parent / name).read_text() for name in ("operations.md", "state.md", "scaling.md"))
    sources = [path.read_text() for path in (TESTS_DIRECTORY.parent / "coordinator").rglob("*.py")]
    lines = [pieces for source in sources for node in ast.walk(ast.parse(source)) if (pieces := _logged(node))]
    assert len(lines) > 15, "the log is written in another way now"
    assert [pieces for pieces in lines if not any(piece in guide for piece in pieces)] == []


def _logged(node: ast.AST) -> list[str]:
    """The constant pieces of a warning or an error that is logged there, if they say anything."""
    match node:
        case ast.Call(func=ast.Attribute(ast.Name("_log" | "_audit"), "warning" | "error" | "critical" | "exception")):
            line = node.args[0]
        case ast.Call(func=ast.Name("log_error")):
            line = node.args[1]
        case _:
            return []
    texts = [part.value for part in ast.walk(line) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    pieces = [piece.strip(" ,:()") for text in texts for piece in re.split(r"%[.\d]*[a-z]|; ", text)]
    return [piece for piece in pieces if len(piece) >= len("is lost")]


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_each_test_of_the_map_is_there(test: str) -> None:
    module, _, name = test.partition("::")
    source = TESTS_DIRECTORY.joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert name in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
