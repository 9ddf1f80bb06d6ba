"""The map from the faults in docs/faults.md to the tests that fail without their defence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS_DIRECTORY = Path(__file__).parents[1]
DOCUMENT = TESTS_DIRECTORY.parent / "docs" / "faults.md"
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)
TESTS: dict[int, list[str]] = {
    1: [
        "coordinator.storage.test_store::test_an_interrupted_reduction_is_repeated",
        "coordinator.test_server::test_a_killed_coordinator_resumes_within_and_between_rounds",
        "faults.test_asynchronous_kills::test_each_acknowledged_update_counts_once_with_its_base_over_many_kills",
        "faults.test_sigkill_loop::test_a_run_over_many_kills_ends_with_the_undisturbed_model",
        "faults.test_sigkill_loop::test_a_run_on_shared_storage_ends_with_the_undisturbed_model",
        "faults.test_state_machine::test_every_acknowledged_update_counts_once_whatever_happens",
    ],
    2: [
        "coordinator.runs.test_close_round::test_a_commit_whose_confirmation_was_lost_counts_once",
        "coordinator.storage.test_recovery::test_killed_between_the_abandonment_and_the_end_of_its_spool",
        "coordinator.storage.test_recovery::test_killed_between_the_spooled_update_and_its_receipt",
        "coordinator.storage.test_recovery::test_killed_while_reducing_before_the_commit",
        "coordinator.updates.test_submission::test_a_full_disk_gives_no_receipt_and_the_update_counts_when_space_returns",
        "faults.test_failpoints::test_a_kill_as_a_round_is_abandoned_leaves_it_open_or_abandoned",
        "faults.test_failpoints::test_a_kill_as_a_run_starts_leaves_none_or_one",
        "faults.test_failpoints::test_a_kill_as_leases_are_inherited_leaves_nobody_waiting_for_their_end",
        "faults.test_failpoints::test_a_kill_before_or_after_any_commit_point_costs_no_update",
        "faults.test_failpoints::test_a_brief_outage_of_a_server_costs_no_update_and_no_restart",
        "faults.test_failpoints::test_a_kill_around_any_shared_commit_point_costs_no_update",
        "faults.test_state_machine::test_every_acknowledged_update_counts_once_whatever_happens",
    ],
    3: [
        "coordinator.storage.db.test_postgres::test_its_commits_are_durable_whatever_the_servers_default",
        "coordinator.storage.db.test_sqlite::test_sqlite_is_durable_against_power_loss",
        "faults.test_power_loss::test_acknowledged_updates_survive_a_power_loss",
    ],
    4: [
        "coordinator.rounds.test_progression::"
        "test_a_lost_declining_or_rejected_device_is_replaced_by_the_next_one_of_the_draw",
        "coordinator.runs.test_replacement::"
        "test_a_cohort_of_10_in_a_fleet_of_20_commits_without_3_devices_on_the_first_attempt",
        "coordinator.devices.test_liveness::test_a_device_that_is_stuck_is_lost_and_one_that_trains_slowly_is_not",
        "coordinator.updates.test_submission::test_an_interrupted_upload_resumes",
        "coordinator.updates.test_submission::test_a_device_that_dies_during_an_upload_can_resume_it",
        "coordinator.updates.test_submission::test_an_upload_ends_with_its_round",
        "coordinator.test_server::test_an_upload_is_resumed_after_a_kill",
        "faults.test_bad_network::test_a_run_over_a_bad_network_ends_with_the_undisturbed_model",
    ],
    5: [
        "coordinator.updates.test_submission::test_all_the_bytes_without_a_commit_do_not_count",
        "coordinator.updates.test_submission::test_a_device_that_dies_during_an_upload_can_resume_it",
        "coordinator.updates.test_submission::test_bytes_that_differ_from_the_declaration_do_not_count",
        "common.blobs.test_store::test_too_few_bytes_are_not_a_blob_but_stay_for_a_resume",
    ],
    6: [
        "coordinator.updates.test_submission::test_the_same_update_again_gets_the_same_receipt_and_counts_once",
        "coordinator.updates.test_submission::test_a_device_that_reconnects_while_its_update_is_committed_gets_its_receipt",
        "replicas.test_shared_rounds::test_the_same_update_at_two_replicas_at_once_counts_once",
    ],
    7: [
        "coordinator.updates.test_submission::test_a_different_second_update_is_rejected_and_the_first_stands",
        "replicas.test_shared_rounds::test_one_of_two_concurrent_updates_at_two_replicas_counts",
    ],
    8: ["coordinator.updates.test_submission::test_an_update_for_a_stale_round_is_rejected_with_the_current_round"],
    9: [
        "coordinator.devices.test_liveness::test_a_straggler_of_a_closed_round_gets_the_status_and_the_metadata",
        "coordinator.devices.test_liveness::"
        "test_an_over_selected_round_closes_without_the_slowest_which_gets_retry_advice",
        "coordinator.devices.test_liveness::test_an_update_during_the_reduction_gets_retry_advice_and_does_not_count",
        "edge_client.agent.test_stopping::test_a_device_logs_when_it_may_be_needed_again",
    ],
    10: [
        "coordinator.rounds.test_progression::test_a_run_fails_after_too_many_attempts_at_one_round",
        "coordinator.runs.test_replacement::"
        "test_an_update_of_an_abandoned_attempt_counts_once_in_the_next_with_the_devices_state",
        "coordinator.runs.test_replacement::test_another_replica_counts_an_update_of_an_abandoned_attempt",
        "coordinator.rounds.test_synchronous::test_a_round_without_quorum_is_abandoned_and_retried",
        "coordinator.rounds.test_synchronous::test_a_round_backs_off_longer_after_each_abandoned_attempt",
        "coordinator.rounds.test_synchronous::test_retries_grow_and_are_capped",
        "coordinator.runs.test_driver::test_a_round_without_quorum_leaves_the_model_unchanged_and_is_retried",
    ],
    11: [
        "coordinator.updates.test_validation::test_a_bad_update_is_rejected_by_name_and_the_round_continues",
        "common.blobs.test_tensors::test_a_value_that_is_not_finite_is_rejected_by_tensor",
    ],
    12: [
        "faults.test_attacks::test_a_device_that_claims_ten_million_samples_does_not_decide_the_model",
        "coordinator.aggregation.test_robust_runs::test_a_weight_cap_bounds_a_device_that_claims_ten_million_samples",
        "coordinator.updates.test_validation::test_an_invalid_header_is_rejected_before_the_bytes",
    ],
    13: [
        "coordinator.updates.test_validation::test_a_bad_update_is_rejected_by_name_and_the_round_continues",
        "common.blobs.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name",
    ],
    14: [
        "coordinator.updates.test_validation::test_a_bad_update_is_rejected_by_name_and_the_round_continues",
        "common.blobs.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name",
    ],
    15: ["common.blobs.test_tensors::test_a_model_that_does_not_match_is_rejected_by_name"],
    16: ["coordinator.runs.test_exchanged_roles::test_a_bad_file_is_rejected_by_role_and_tensor"],
    17: [
        "coordinator.updates.test_submission::"
        "test_a_device_that_sends_too_many_bytes_for_one_round_is_stopped_and_the_others_are_not",
        "coordinator.updates.test_validation::test_an_invalid_header_is_rejected_before_the_bytes",
        "common.blobs.test_store::test_more_than_the_declared_size_is_rejected",
    ],
    18: [
        "common.blobs.test_encoded_models::test_a_decompression_bomb_stops_at_the_size_that_a_model_has",
        "coordinator.updates.test_codec::test_an_invalid_encoded_model_is_rejected_and_the_round_continues",
    ],
    19: [
        "coordinator.updates.test_submission::test_a_device_that_stalls_during_an_upload_is_told_to_retry",
        "coordinator.rpc.test_flow_control::test_a_stream_that_falls_silent_or_never_ends_times_out",
    ],
    20: [
        "coordinator.rpc.test_rate_limit::test_a_caller_may_make_a_burst_of_calls_and_then_a_limited_rate",
        "coordinator.rpc.test_rate_limit::test_a_flood_is_rejected_while_health_operators_and_other_devices_are_served",
        "coordinator.rpc.test_rate_limit::test_calls_at_once_are_bounded_for_one_and_for_all",
    ],
    21: [
        "coordinator.updates.test_submission::test_a_full_disk_gives_no_receipt_and_the_update_counts_when_space_returns",
        "coordinator.runs.test_close_round::test_a_round_waits_for_a_transient_failure_and_counts_acknowledged_updates",
        "coordinator.updates.test_submission::test_an_update_that_could_not_be_stored_does_not_count_against_its_device",
        "coordinator.runs.test_manager::test_a_run_with_unavailable_files_at_start_resumes_once_they_are_available",
        "coordinator.runs.test_close_round::test_a_round_waits_for_an_object_store_that_fails_while_it_is_reduced",
        "faults.test_failpoints::test_a_disk_that_is_full_for_a_moment_costs_no_update_and_no_restart",
    ],
    22: [
        "coordinator.runs.test_close_round::test_a_damaged_spooled_update_counts_as_rejected_and_the_others_are_merged",
        "coordinator.runs.test_suspended::test_a_run_with_a_damaged_file_is_suspended_and_the_others_continue",
        "coordinator.runs.test_rollback::test_a_damaged_file_of_the_newest_global_state_is_replaced_by_the_previous_one",
        "coordinator.runs.test_rollback::test_damage_during_a_round_produces_no_model_and_the_run_continues_without_a_restart",
        "coordinator.runs.test_rollback::test_without_a_complete_previous_state_the_run_is_suspended",
    ],
    23: [
        "coordinator.storage.db.test_sqlite::test_a_damaged_database_is_rejected_at_start",
        "coordinator.storage.db.test_sqlite::test_a_database_with_hidden_damage_is_rejected_at_start",
        "coordinator.test_server::test_a_database_that_is_gone_or_damaged_is_not_replaced",
        "coordinator.storage.db.test_postgres::test_missing_tables_are_not_recreated",
    ],
    24: [
        "faults.test_clock::test_a_round_waits_for_its_configured_time",
        "faults.test_clock::test_rounds_complete_and_none_has_a_negative_duration",
    ],
    25: [
        "faults.test_attacks::test_an_expired_certificate_ends_its_connections",
        "coordinator.rpc.test_revocations::test_a_certificate_is_rejected_once_it_has_expired",
        "edge_client.agent.test_enrolment::test_an_expired_identity_is_enrolled_again_with_its_name_and_key",
        "edge_client.agent.test_session::test_a_certificate_has_expired_once_the_coordinator_has_rejected_it",
        "proto.transport.test_diagnosis::test_an_expired_certificate_is_final_and_noticed_locally",
    ],
    26: [
        "edge_client.agent.test_first_contact::test_before_the_first_contact_another_server_is_final_after_a_few_attempts",
        "coordinator.rpc.test_authentication::test_another_authoritys_certificate_and_none_are_rejected",
        "edge_client.agent.test_enrolment::test_a_server_not_signed_by_the_tokens_authority_is_rejected",
    ],
    27: ["coordinator.rpc.test_authentication::test_no_call_can_be_made_in_another_devices_name"],
    28: [
        "faults.test_attacks::test_a_revoked_device_is_rejected_on_every_call",
        "coordinator.rpc.test_control_devices::test_a_revoked_device_in_the_middle_of_an_upload_is_cut_off",
        "coordinator.rpc.test_control_devices::test_every_certificate_of_a_revoked_device_is_rejected",
        "coordinator.rpc.test_control_devices::test_a_reflashed_board_continues_its_run_under_its_name",
        "coordinator.rpc.test_control_devices::test_a_removed_devices_updates_stay_counted",
        "coordinator.rpc.test_control_devices::test_a_renamed_device_may_only_renew_under_its_new_name",
        "coordinator.rpc.test_revocations::test_a_certificate_is_rejected_by_its_serial_number",
        "edge_client.agent.test_session::test_a_renamed_device_continues_under_its_new_name",
        "replicas.test_revocation::test_a_device_is_cut_off_at_the_other_replica_in_the_middle_of_an_upload",
    ],
    29: [
        "coordinator.pki.test_enrolment::test_a_used_token_an_expired_one_and_a_forged_one_are_rejected",
        "coordinator.rpc.test_authentication::test_an_expired_token_is_rejected",
    ],
    30: [
        "coordinator.aggregation.test_robust_runs::test_a_weight_cap_bounds_a_device_that_claims_ten_million_samples",
        "coordinator.rpc.test_authentication::test_a_token_enrols_its_number_of_devices",
        "coordinator.storage.test_device_registry::test_concurrent_enrolments_never_exceed_a_tokens_uses",
    ],
    31: [
        "coordinator.aggregation.test_robust_runs::test_robust_aggregation_keeps_the_model_and_names_the_poisoned_devices",
        "coordinator.aggregation.test_robust_prototypes::"
        "test_a_class_mean_is_no_longer_than_a_multiple_of_the_median_of_its_sharers",
        "coordinator.aggregation.test_robust_prototypes::test_a_poisoned_class_mean_does_not_move_the_prototype_and_is_reported",
        "coordinator.aggregation.test_robust_runs::test_a_norm_clip_bounds_how_far_poisoned_devices_get",
    ],
    33: [
        "edge_client.agent.test_worker_process::test_the_device_survives_a_worker_that_dies",
        "edge_client.test_attacks::test_a_device_survives_every_attack_and_trains_the_next_round",
        "edge_client.test_attacks::test_profile_and_predict_reject_every_attack",
    ],
    34: [
        "coordinator.test_server::test_a_coordinator_imports_no_torch_no_runtime_and_no_export",
        "faults.test_decoders::test_a_file_that_would_execute_code_when_loaded_is_rejected_unopened",
    ],
    35: [
        "coordinator.api.test_device_api::test_a_device_that_cannot_run_the_plan_is_notified_and_not_selected",
        "coordinator.api.test_device_api::test_another_major_version_of_the_contract_is_rejected_with_both_versions",
        "edge_client.agent.test_compatibility::test_a_plan_that_needs_newer_things_is_not_run",
    ],
    36: [
        "compatibility.test_migrations::test_a_downgrade_is_refused_and_changes_nothing",
        "compatibility.test_migrations::test_a_kill_at_any_statement_loses_nothing",
        "coordinator.runs.test_suspended::test_a_run_with_a_damaged_file_is_suspended_and_the_others_continue",
    ],
    37: [
        "coordinator.storage.blobs.test_ownership::test_a_second_coordinator_with_another_blob_store_does_not_start",
        "replicas.test_own_leases::test_a_copy_of_a_directory_takes_the_runs_and_the_original_follows",
        "replicas.test_shared_rounds::test_only_the_holder_closes_a_round",
        "replicas.test_shared_rounds::test_updates_that_a_follower_accepts_before_the_round_closes_are_reduced",
        "replicas.test_shared_rounds::test_updates_at_a_follower_after_the_round_has_closed_get_no_receipt",
        "replicas.test_two_replicas::test_the_holder_is_paused_beyond_its_lease",
        "coordinator.storage.test_leases::test_a_lease_that_ran_out_commits_nothing_even_if_nobody_took_it",
        "coordinator.storage.test_leases::test_a_lease_that_ran_out_is_taken_over_and_its_old_holder_cannot_commit",
        "coordinator.storage.test_leases::test_only_the_holder_of_a_runs_lease_changes_it",
        "coordinator.storage.test_state_directory::test_one_coordinator_at_a_time",
        "coordinator.test_server::test_a_second_coordinator_on_one_state_and_on_one_port_is_rejected",
    ],
    121: [
        "coordinator.aggregation.robust.test_pipeline::test_a_long_change_is_clipped_from_two_updates_on",
        "coordinator.aggregation.robust.test_pipeline::test_as_many_attackers_as_honest_devices_raise_no_bound",
        "coordinator.aggregation.robust.test_weight_cap::test_missing_devices_leave_the_others_no_more_weight",
        "coordinator.aggregation.test_bounds::test_an_asynchronous_buffer_that_is_not_full_is_bounded_as_a_full_one",
        "coordinator.aggregation.test_bounds::test_missing_devices_do_not_free_a_malicious_one_of_its_bounds",
        "coordinator.aggregation.test_bounds::test_missing_devices_leave_a_malicious_one_no_more_weight",
        "coordinator.aggregation.test_bounds::test_the_bounds_of_an_over_selected_cohort_are_those_of_the_cohort",
    ],
    122: [
        "coordinator.runs.test_exclusion::test_a_device_that_is_clipped_twice_in_a_row_takes_part_in_no_further_round",
        "coordinator.runs.test_exclusion::test_a_follower_shows_the_exclusion_and_the_next_holder_keeps_it",
        "coordinator.runs.test_exclusion::test_an_asynchronous_run_leaves_a_clipped_device_out_of_its_buffer",
        "coordinator.runs.test_exclusion::test_an_exclusion_survives_a_restart",
        "coordinator.storage.test_participants::test_the_clips_in_a_row_of_each_device_are_counted",
    ],
    32: [
        "coordinator.devices.test_eligibility::test_a_device_that_declines_a_run_for_good_is_ineligible_until_its_fingerprint_changes",
        "coordinator.runs.test_create::test_a_bundle_without_a_valid_signature_starts_no_run",
        "edge_client.agent.test_bundle_trust::test_a_rejected_run_is_mentioned_once_however_often_it_is_assigned",
        "edge_client.agent.test_bundle_trust::test_an_attack_is_rejected_before_the_plan_is_fetched",
        "edge_client.agent.test_bundle_trust::test_an_older_version_is_rejected_also_after_a_restart",
        "edge_client.agent.test_bundle_trust::test_one_altered_byte_of_a_signed_file_is_found",
        "edge_client.agent.test_bundle_trust::test_too_few_signatures_are_rejected_and_enough_are_accepted",
        "common.signing.test_bundle_signature::test_every_altered_byte_is_rejected",
        "common.signing.test_trust::test_a_broken_chain_is_rejected",
    ],
    38: [
        "edge_client.agent.test_session::test_a_coordinator_that_restarts_in_mid_round_receives_the_update",
        "edge_client.agent.test_session::test_an_update_that_was_not_acknowledged_is_submitted_after_a_restart_without_training",
        "edge_client.agent.test_executor::test_a_rejected_update_is_not_sent_again",
        "edge_client.agent.test_executor::test_an_update_waits_until_the_coordinators_failure_has_passed",
        "faults.test_bad_network::test_a_run_over_a_bad_network_ends_with_the_undisturbed_model",
        "proto.transport.test_client::test_a_connection_broken_right_after_the_handshake_is_retried",
        "proto.transport.test_client::test_backoff_grows_is_capped_and_is_reset",
        "proto.transport.test_client::test_devices_that_lost_their_coordinator_together_do_not_come_back_together",
    ],
    39: [
        "edge_client.test_attacks::test_a_device_survives_every_attack_and_trains_the_next_round",
        "edge_client.test_attacks::test_profile_and_predict_reject_every_attack",
        "edge_client.state.test_round_results::test_what_an_escaped_plan_could_leave_is_not_stored",
        "edge_client.worker.test_sandboxed_plans::test_no_program_of_a_device_imports_from_its_working_directory",
        "common.sandbox.test_sandboxed::test_torchs_own_threads_are_in_the_sandbox_too",
        "common.plan.inspection.test_operators::test_operators_that_reach_beyond_their_tensors_are_rejected",
        "common.sandbox.test_landlock::test_each_right_is_given_up",
        "common.sandbox.test_policy::test_no_system_directory_of_a_plan_holds_files_of_users",
        "common.sandbox.test_policy::test_other_files_are_out_of_reach",
    ],
    40: [
        "edge_client.test_attacks::test_a_device_survives_every_attack_and_trains_the_next_round",
        "edge_client.test_attacks::test_profile_and_predict_reject_every_attack",
        "fuzzing.test_plan_mutants::test_mutants_are_refused_or_harmless_and_execute_nothing_while_they_load",
        "common.plan.inspection.test_archive::test_code_that_runs_at_loading_is_rejected",
        "common.plan.inspection.test_source::test_anything_that_the_printer_does_not_write_is_rejected",
    ],
    41: [
        "edge_client.test_attacks::test_a_device_survives_every_attack_and_trains_the_next_round",
        "edge_client.test_attacks::test_profile_and_predict_reject_every_attack",
        "common.sandbox.test_sandboxed::test_the_process_has_no_more_than_it_needs",
        "common.sandbox.test_policy::test_network_programs_and_other_processes_are_out_of_reach",
        "common.sandbox.test_seccomp::test_a_call_of_a_32_bit_program_ends_the_process",
        "common.sandbox.test_seccomp::test_calls_are_denied_by_whatever_name_they_are_known",
        "common.plan.graph.test_arguments::test_an_argument_of_another_type_is_refused_before_any_operator_runs",
        "common.plan.graph.test_inspection::test_a_hostile_plan_is_refused_before_any_operator_runs",
    ],
    89: [
        "common.sandbox.test_policy::test_the_samples_memory_cannot_be_changed_even_by_the_superuser",
        "common.sandbox.test_policy::test_the_superuser_keeps_only_the_privilege_to_read_files",
    ],
    90: [
        "common.sandbox.test_policy::test_nothing_can_be_made_immutable",
        "common.sandbox.test_seccomp::test_a_file_may_not_be_made_immutable",
    ],
    91: [
        "common.sandbox.test_policy::test_memory_cannot_be_taken_beyond_the_limit",
        "common.sandbox.test_policy::test_memory_that_is_not_counted_is_denied_though_it_is_little",
        "common.sandbox.test_seccomp::test_memory_that_no_limit_counts_may_not_be_mapped",
    ],
    92: [
        "coordinator.cli.test_run_start::test_a_plan_that_attacks_the_operator_starts_no_run",
        "cli.test_hostile_plans::test_a_plan_that_writes_a_file_is_rejected_and_writes_none",
        "common.sandbox.test_plan_process::test_a_plan_that_devices_reject_is_rejected",
    ],
    180: [
        "edge_client.agent.test_session::test_plans_that_this_device_cannot_run_are_declined_before_they_are_fetched",
        "common.plan.inspection.test_older_torch::test_a_declaration_must_mean_the_same",
        "common.plan.inspection.test_older_torch::test_a_network_needs_the_torch_that_declares_its_calls",
    ],
    190: [
        "coordinator.devices.test_shared_identities::test_copies_that_take_turns_are_found_with_their_addresses",
        "coordinator.devices.test_shared_identities::test_one_device_shares_its_identity_with_nobody",
        "coordinator.replicas.test_presence::test_copies_of_a_device_at_two_replicas_are_found_at_both",
        "federation.test_administration::test_a_copied_state_directory_is_reported_and_a_restarted_device_is_not",
    ],
    191: [
        "federation.test_eligibility::test_a_run_without_eligible_devices_says_so_and_why",
        "federation.test_evaluation::test_devices_score_what_the_graph_predicts_on_the_same_samples",
        "edge_client.agent.test_releases::"
        "test_a_device_without_data_installs_what_runs_and_says_that_it_did_not_compare",
    ],
    192: [
        "edge_client.agent.test_session::test_a_clock_that_is_ahead_ends_no_device",
        "edge_client.agent.test_session::test_a_certificate_has_expired_once_the_coordinator_has_rejected_it",
        "proto.transport.test_diagnosis::test_a_wrong_clock_is_not_final",
    ],
    193: [
        "edge_client.agent.test_eligibility::test_a_device_whose_torch_lacks_an_operator_is_not_eligible",
        "common.plan.inspection.test_torch_registry::"
        "test_a_plan_that_calls_one_tells_it_when_it_is_made_and_when_it_is_loaded",
    ],
    181: [
        "deploy.test_extras::test_an_extra_brings_the_onnx_runtime_that_its_name_says_and_no_other",
        "edge_client.doctor.test_checks::test_two_onnx_runtimes_that_overwrite_each_other_fail",
    ],
    43: ["test_documentation::test_documents_warn_that_a_plans_author_can_read_the_data"],
    44: [
        "faults.test_attacks::test_a_device_that_reads_none_of_its_downloads_delays_nobody",
        "coordinator.rpc.test_flow_control::test_a_download_that_never_ends_is_cut_off",
        "coordinator.rpc.test_flow_control::test_one_callers_streams_delay_no_other_caller",
        "coordinator.rpc.test_stalled_downloads::test_a_download_that_is_not_read_is_ended_with_its_connection",
    ],
    45: [
        "edge_client.agent.test_session::test_a_device_that_has_reached_the_coordinator_retries_while_another_server_answers",
    ],
    46: [
        "faults.test_attacks::test_a_renewal_is_logged_with_both_certificates",
    ],
    47: [
        "coordinator.runs.test_create::test_a_graph_that_names_another_file_starts_no_run",
        "export.test_binding::test_a_graph_that_names_the_operators_key_is_never_read",
        "export.test_coordinator_client::test_the_operators_key_does_not_become_part_of_a_model",
        "common.plan.inspection.test_graph::test_a_tensor_in_another_file_is_rejected_wherever_it_is",
        "serving.models.test_repository::test_a_model_whose_tensors_are_elsewhere_is_not_loaded",
    ],
    48: [
        "serving.test_attacks::test_a_compressed_message_that_expands_is_rejected",
        "serving.test_attacks::test_a_handshake_that_stops_is_closed",
        "serving.test_attacks::test_a_small_body_that_expands_to_megabytes_of_json_is_not_parsed",
        "serving.test_attacks::test_an_endless_body_is_cut_off",
        "serving.test_attacks::test_connections_beyond_the_limit_replace_those_that_wait",
        "serving.test_attacks::test_grpc_connections_beyond_the_limit_are_rejected",
        "serving.test_attacks::test_grpc_connections_without_a_call_are_closed",
        "serving.test_attacks::test_headers_are_bounded_in_bytes_and_in_number",
        "serving.test_attacks::test_messages_that_do_not_arrive_are_cancelled",
        "serving.test_attacks::test_requests_that_follow_each_other_are_bounded",
        "serving.test_attacks::test_requests_that_stop_arriving_are_closed",
        "serving.test_attacks::test_unfinished_bodies_are_bounded_together",
        "serving.test_attacks::test_unfinished_messages_are_bounded_together",
        "serving.grpc.test_receiving::test_the_client_with_the_most_calls_loses_its_oldest",
        "serving.http.test_connections::test_the_largest_unfinished_body_gives_way",
        "serving.http.test_connection::test_a_client_that_does_not_read_is_cut_off_unless_it_makes_progress",
    ],
    49: [
        "serving.models.test_repository::test_a_config_names_only_files_of_its_model",
        "serving.models.test_repository::test_a_server_shows_nobody_a_file_outside_a_model",
        "serving.models.test_repository::test_a_model_whose_config_names_a_file_elsewhere_is_not_loaded",
    ],
    50: [
        "release.test_follow::test_with_a_key_rounds_are_compared_only_with_a_version_as_it_was_signed",
        "release.test_predict::test_a_file_is_verified_with_the_version_that_it_belongs_to",
        "release.test_repository::test_a_version_is_verified_with_its_configuration_and_labels",
        "serving.models.test_version_files::test_a_server_with_a_key_serves_only_signed_versions",
        "serving.models.test_version_files::test_a_version_that_is_changed_while_it_is_served_stays_as_it_was",
        "serving.models.test_version_files::test_a_version_changed_after_signing_is_not_loaded",
    ],
    51: [
        "common.sandbox.test_child_process::test_a_child_is_killed_at_its_time_limit_though_it_reports_progress",
        "edge_client.test_attacks::test_a_device_survives_every_attack_and_trains_the_next_round",
        "edge_client.test_attacks::test_profile_and_predict_reject_every_attack",
        "common.plan.inspection.test_archive::test_records_that_overlap_are_rejected",
        "common.sandbox.test_policy::test_resources_are_limited",
    ],
    52: [
        "faults.test_attacks::test_a_device_gets_nothing_of_a_run_that_it_only_names",
        "coordinator.devices.test_blob_access::test_a_device_may_fetch_the_blobs_of_its_runs",
    ],
    53: [
        "faults.test_attacks::test_a_device_that_claims_ten_million_samples_does_not_decide_the_model",
    ],
    54: [
        "faults.test_attacks::test_a_guessers_log_is_short",
        "coordinator.rpc.test_rate_limit::test_a_guesser_is_limited_by_its_address_however_often_it_reconnects",
        "coordinator.rpc.test_interceptor::test_a_peers_port_is_not_its_name",
    ],
    55: [
        "faults.test_attacks::test_silent_connections_take_no_established_devices_place",
        "faults.test_attacks::test_a_handshake_that_is_not_completed_is_ended",
        "coordinator.rpc.test_connections::test_connections_without_a_call_leave_room_for_those_with_one",
    ],
    56: [
        "faults.test_attacks::test_operators_actions_are_logged_with_their_certificate_and_address",
    ],
    57: [
        "coordinator.test_server::test_a_state_directory_that_others_can_read_becomes_private",
        "edge_client.agent.test_main::test_other_users_cannot_read_what_a_device_stores",
    ],
    58: [
        "coordinator.cli.test_run_start::test_a_bundle_that_would_exhaust_the_machine_is_rejected_in_one_sentence",
        "common.bundle.test_files::test_a_directory_with_a_device_or_a_pipe_for_a_file_is_rejected",
        "common.bundle.test_files::test_a_small_zip_that_expands_to_gigabytes_is_rejected_unread",
    ],
    59: [
        "common.plan.inspection.test_operators::test_operators_that_reach_beyond_their_tensors_are_rejected",
        "coordinator.runs.test_create::test_a_manifest_that_would_forge_lines_of_a_log_starts_no_run",
        "common.sandbox.test_child_process::test_a_childs_texts_are_single_short_lines",
        "common.bundle.test_manifest::test_a_wrong_manifest_is_rejected_by_field",
        "common.test_validate::test_text_that_could_forge_a_line_or_move_a_cursor_is_rejected",
    ],
    61: [
        "serving.requests.test_access::test_a_revoked_key_is_rejected_while_the_server_runs",
        "serving.requests.test_access::test_a_server_that_others_can_reach_needs_authentication",
        "serving.requests.test_access::test_a_stream_needs_a_key",
        "serving.requests.test_access::test_clients_need_a_certificate_of_the_authority",
        "serving.requests.test_access::test_every_call_but_health_checks_needs_a_key",
        "serving.requests.test_access::test_grpc_needs_a_key_too",
        "serving.requests.test_access::test_only_an_admin_loads_models_and_reads_metrics",
    ],
    60: [
        "faults.test_decoders::test_a_hostile_manifest_is_rejected",
        "fuzzing.test_campaign::test_an_exception_is_found_once_with_its_input",
        "fuzzing.test_decoders::test_only_our_own_errors_escape",
        "common.plan.inspection.test_pickles::test_a_pickle_that_makes_unpicklers_reserve_gigabytes_is_rejected",
        "serving.test_attacks::test_a_number_of_5000_digits_in_a_header_or_a_path_is_rejected",
        "serving.test_attacks::test_json_that_is_too_large_deep_or_odd_is_rejected",
    ],
    71: [
        "coordinator.rounds.test_cohort::test_another_secret_draws_others_though_seed_and_names_are_the_same",
        "coordinator.runs.test_exchanged_roles::test_sharing_devices_are_drawn_from_the_runs_secret_in_every_round",
        "coordinator.runs.test_secret_draw::test_a_killed_coordinator_draws_the_next_attempts_from_the_same_secret",
        "coordinator.runs.test_secret_draw::test_another_replica_draws_the_next_attempt_from_the_same_secret",
        "coordinator.runs.test_secret_draw::"
        "test_cohorts_of_two_runs_differ_though_their_seeds_and_devices_are_the_same",
        "federation.test_secret_draw::test_nothing_that_a_device_or_an_operator_can_see_holds_the_secret",
    ],
    73: [
        "edge_client.agent.test_worker_process::test_samples_without_room_in_memory_train_the_same_model",
        "edge_client.data.test_cache::test_an_interrupted_decoding_leaves_nothing_that_is_used",
        "edge_client.data.test_cache::test_too_small_a_disk_is_found_before_decoding",
    ],
    72: [
        "edge_client.worker.test_class_means::"
        "test_an_update_shares_means_of_classes_with_ten_samples_and_zeros_for_others",
        "edge_client.worker.test_class_means::test_no_count_of_a_class_is_in_an_update",
    ],
    70: [
        "coordinator.runs.test_evaluations::test_an_evaluation_survives_a_restart_of_the_coordinator",
        "edge_client.agent.test_evaluation::test_a_killed_device_answers_when_it_is_asked_again",
        "faults.test_evaluation_kills::test_every_device_counts_once_in_each_evaluation_over_many_kills",
        "faults.test_evaluation_kills::test_the_same_on_shared_storage",
        "replicas.test_evaluations::test_devices_of_both_replicas_answer_and_one_continues_without_the_other",
    ],
    85: [
        "proto.transport.test_replies::test_a_malformed_name_is_rejected_wherever_it_is",
        "proto.transport.test_replies::test_a_malformed_digest_is_rejected",
        "proto.transport.test_checked_channel::test_no_program_opens_a_channel_of_its_own",
        "faults.test_malicious_coordinator::test_a_name_never_leads_an_export_out_of_its_directory",
        "faults.test_malicious_coordinator::test_a_release_that_is_not_verified_is_not_exported",
        "faults.test_malicious_coordinator::test_a_bundle_that_is_not_verified_is_not_exported",
    ],
    86: [
        "proto.transport.test_replies::test_text_for_people_becomes_one_printable_line",
        "proto.transport.test_checked_channel::test_an_errors_details_become_one_printable_line",
        "faults.test_malicious_coordinator::test_nothing_that_a_coordinator_sends_reaches_a_terminal_as_a_control",
        "faults.test_malicious_coordinator::test_the_python_client_raises_and_returns_printable_text",
        "edge_client.agent.test_enrolment::test_a_certificate_that_is_not_the_devices_replaces_nothing",
    ],
    87: [
        "edge_client.agent.test_floods::test_checks_that_nobody_has_signed_leave_nothing",
        "edge_client.agent.test_floods::test_assignments_that_nobody_has_signed_leave_nothing",
        "edge_client.agent.test_floods::test_evaluations_that_nobody_has_signed_leave_nothing",
        "edge_client.agent.test_floods::test_releases_that_nobody_has_signed_leave_nothing",
        "edge_client.agent.test_floods::test_a_genuine_signature_in_many_guises_is_stored_a_few_times",
        "edge_client.agent.test_floods::test_models_that_end_early_do_not_pile_up",
        "edge_client.agent.test_flood_filter::test_a_kind_of_line_gets_a_few_lines_and_then_a_count",
        "edge_client.agent.test_inbox::test_the_number_of_waiting_tasks_is_bounded",
    ],
    88: [
        "edge_client.agent.test_enrolment::test_the_trusted_keys_stay_when_a_token_has_others",
        "edge_client.agent.test_enrolment::test_only_an_explicit_trust_file_replaces_other_keys",
    ],
    62: [
        "deploy.test_deploy::test_an_image_installs_its_locked_requirements_and_nothing_else",
        "deploy.test_images::test_an_image_is_not_built_if_a_dependency_was_replaced",
        "deploy.test_requirements::test_every_requirement_has_hashes_and_no_address",
        "deploy.test_requirements::test_every_version_is_that_of_the_constraints",
        "tools.test_audit::test_without_a_database_nothing_is_claimed",
        "tools.test_bill_of_materials::test_it_is_valid_and_names_the_wheel_by_its_digest",
    ],
    63: [
        "coordinator.devices.test_release_targets::test_an_unavailable_database_loses_no_arrival",
        "coordinator.storage.test_deployments::test_a_release_goes_to_a_tenth_then_to_all_then_back",
        "coordinator.storage.test_deployments::test_what_a_device_says_when_it_connects_is_the_truth",
        "replicas.test_releases::test_a_release_is_deployed_widened_and_rolled_back",
    ],
    64: [
        "coordinator.storage.test_deployments::test_concurrent_operators_get_different_numbers",
        "coordinator.storage.test_releases::test_another_version_than_the_next_is_rejected",
        "release.test_create::test_versions_are_numbered_and_a_taken_number_is_tried_again",
    ],
    65: [
        "coordinator.rpc.test_control_releases::test_a_declined_target_comes_again_only_with_another_fingerprint",
        "coordinator.storage.test_deployments::test_a_decline_is_recorded_once_and_not_retried",
        "coordinator.storage.test_deployments::test_a_device_that_fell_back_is_reported_and_keeps_its_previous_version",
    ],
    66: [
        "coordinator.rpc.test_control_releases::test_releases_that_do_not_fit_are_rejected_by_name",
        "coordinator.storage.test_releases::test_a_release_has_the_weights_and_the_bundle_of_its_run",
        "coordinator.storage.test_releases::test_all_versions_of_a_name_have_one_interface",
    ],
    67: [
        "edge_client.agent.test_releases::test_a_device_that_is_killed_again_and_again_answers_with_a_whole_version_"
        "and_continues",
        "edge_client.agent.test_releases::test_an_interrupted_transfer_resumes_after_a_restart",
        "edge_client.state.test_releases::test_a_kill_at_any_moment_leaves_the_old_version_or_the_new_one",
        "edge_client.state.test_releases::test_a_power_loss_leaves_the_old_version_or_the_new_one",
    ],
    68: [
        "edge_client.agent.test_releases::test_a_version_that_fails_to_load_leaves_the_one_before",
        "edge_client.agent.test_releases::test_a_version_that_is_worse_on_the_holdout_is_declined",
        "edge_client.agent.test_releases::test_an_unsuitable_release_is_declined_with_the_reason",
    ],
    74: [
        "common.tasks.test_added_metric::test_a_failure_or_anything_but_a_finite_number_is_refused",
        "common.tasks.test_added_metric::test_a_metric_gets_all_outputs_and_targets_and_cannot_change_them",
        "export.test_evaluator::test_a_packages_metric_is_recorded_with_the_tasks_and_asked_of_models_that_lack_it",
    ],
    69: [
        "edge_client.agent.test_releases::test_a_version_that_is_found_damaged_gives_way_to_the_one_before",
        "edge_client.test_predictor::test_the_previous_version_answers_where_the_current_one_cannot_be_loaded",
        "edge_client.state.test_releases::test_a_damaged_version_gives_way_to_the_previous_one",
    ],
    78: [
        "common.data.test_windows::test_the_end_of_each_series_is_for_testing_and_shares_no_row",
        "edge_client.data.test_split::test_the_end_of_a_series_is_held_out",
        "experiments.test_own_partition::test_windows_of_rows_stay_with_their_device_and_none_is_also_in_the_test",
    ],
    79: ["coordinator.cli.test_target_metrics::test_a_name_that_is_almost_one_of_the_runs_metrics_is_refused"],
    80: [
        "serving.test_attacks::test_bodies_of_requests_that_fail_are_not_kept",
        "serving.test_attacks::test_bodies_that_wait_for_a_model_count_after_their_clients_have_left",
        "serving.http.test_connections::"
        "test_a_complete_body_counts_until_the_application_has_finished_even_if_its_client_is_gone",
        "serving.http.test_connection::test_a_lost_connection_keeps_no_request_until_garbage_is_collected",
        "serving.http.test_connection::test_a_rejected_connection_frees_its_bodies_before_its_client_reads_the_reason",
        "serving.requests.test_thread_pool::test_neither_a_request_nor_its_answer_is_kept_until_garbage_is_collected",
    ],
    81: [
        "coordinator.console.test_guard::test_errors_that_anybody_can_repeat_do_not_fill_the_log",
        "coordinator.console.test_security::"
        "test_logins_that_no_program_could_store_are_rejected_counted_and_logged_briefly",
        "coordinator.console.test_security::test_a_number_with_many_digits_is_no_page",
        "coordinator.console.test_security::test_no_action_takes_a_number_that_is_none",
        "coordinator.console.test_security::test_no_action_takes_text_that_is_no_text",
    ],
    82: [
        "coordinator.console.test_guard::test_behind_a_proxy_no_other_caller_is_served",
        "coordinator.console.test_proxy::test_a_local_program_that_does_not_know_the_secret_is_nobody",
        "coordinator.console.test_proxy::test_a_real_proxy_logs_operators_in_and_its_headers_cannot_be_forged",
        "coordinator.console.test_proxy::test_a_secret_that_is_none_is_rejected",
        "coordinator.console.test_settings::test_what_would_be_exposed_is_rejected",
    ],
    83: [
        "serving.models.test_repository::test_a_server_shows_nobody_a_file_through_a_link",
        "serving.models.test_repository::test_links_out_of_a_repository_are_not_followed",
        "serving.models.test_repository::test_links_within_a_repository_are_followed",
    ],
    84: [
        "coordinator.console.test_attempts::test_many_addresses_lock_nobody_out_and_guess_little",
        "coordinator.console.test_security::test_guesses_at_the_same_time_count_before_they_are_verified",
        "coordinator.console.test_security::test_many_addresses_that_guess_lock_no_operator_out",
    ],
    170: [
        "coordinator.cli.test_releases::test_a_roll_back_that_leaves_devices_without_a_model_says_so",
        "coordinator.deployments.test_state::test_a_roll_back_tells_which_devices_it_leaves_without_a_model",
        "coordinator.storage.test_deployments::test_a_roll_back_to_a_version_ends_all_newer_deployments",
    ],
    171: [
        "coordinator.cli.test_releases::test_a_selection_of_no_device_is_an_error",
        "coordinator.storage.test_deployments::test_a_selection_of_no_device_changes_nothing",
    ],
    172: [
        "coordinator.rpc.test_control_devices::test_a_run_does_not_show_a_removed_renamed_or_revoked_device_as_ineligible",
        "coordinator.runs.test_evaluations::test_an_evaluation_names_devices_by_reason_and_has_a_summary_once_there_is_a_score",
        "coordinator.storage.test_deployments::test_revoked_devices_are_not_chosen_and_removed_ones_are_forgotten",
        "coordinator.storage.test_eligibility::test_a_revoked_device_does_not_count",
    ],
    173: [
        "coordinator.cli.test_operators::test_a_name_that_nobody_can_have_is_one_sentence_and_leaves_nothing_behind",
        "edge_client.agent.test_enrolment::test_a_name_that_no_device_can_have_leaves_nothing_behind",
    ],
    130: [
        "common.data.test_csv_lines::test_a_stray_quote_is_an_error_with_its_row",
        "common.data.test_csv_lines::test_a_quoted_cell_with_lines_that_look_like_rows_is_noted",
        "common.data.test_table::test_a_quote_that_swallows_lines_is_reported_when_it_changes",
    ],
    131: ["common.data.test_table::test_a_row_with_any_cell_counts_although_the_models_columns_are_empty"],
    182: ["edge_client.data.test_split::test_known_anomalies_are_neither_trained_on_nor_held_out"],
    150: [
        "serving.models.test_batch_probe::test_a_model_whose_rows_depend_on_each_other_is_not_batched",
        "serving.models.test_batch_probe::test_answers_under_load_are_those_of_each_request_alone",
    ],
    151: ["serving.models.test_batch_probe::test_a_graph_with_a_fixed_batch_cannot_be_batched"],
    160: ["edge_client.agent.test_session::test_a_device_waits_for_data_that_are_not_mounted_yet"],
    161: [
        "edge_client.agent.test_enrolment::test_a_disk_that_is_full_or_read_only_may_be_mended",
        "edge_client.agent.test_enrolment::test_a_read_only_state_directory_ends_with_an_exit_code_that_is_restarted",
    ],
    200: [
        "edge_client.agent.test_release_gate::test_an_equally_good_version_is_declined_at_most_as_often_as_the_level_says",
        "edge_client.agent.test_releases::test_a_version_is_declined_only_for_a_drop_that_is_significant_and_too_large",
        "edge_client.agent.test_releases::test_a_device_that_declined_a_version_connects_again_when_its_data_change",
    ],
    220: [
        "coordinator.devices.test_eligibility::test_the_classes_that_no_eligible_device_has_are_named",
        "coordinator.devices.test_eligibility::test_a_device_that_joins_later_brings_a_class",
        "edge_client.agent.test_eligibility::test_a_device_says_which_classes_it_has_only_if_it_is_asked",
        "federation.test_eligibility::test_a_run_names_the_classes_that_no_device_has",
    ],
    221: [
        "edge_client.agent.test_parts::test_a_disk_too_small_for_the_parts_is_noticed_first",
        "edge_client.agent.test_parts::test_a_fetch_that_was_cut_goes_on_where_it_ended",
        "edge_client.agent.test_parts::test_a_part_is_fetched_once_and_again_only_if_it_is_damaged",
    ],
    222: [
        "edge_client.agent.test_parts::test_the_newest_intact_personal_part_is_used_whether_or_not_its_round_counted",
        "edge_client.state.test_releases::"
        "test_going_back_restores_the_personal_tensors_that_a_version_was_installed_with",
        "coordinator.runs.test_assignments::"
        "test_devices_keep_state_for_their_method_their_personal_tensors_or_a_lossy_encoding",
        "coordinator.runs.test_round_meter::test_operators_see_the_figures_of_a_round",
    ],
    223: ["federation.test_parts::test_frozen_tensors_are_fetched_once_and_personal_ones_never_leave"],
    230: [
        "export.weights.test_tokenizer::test_other_tokens_than_those_of_the_weights_are_refused",
        "export.weights.test_tokenizer::test_others_are_refused",
    ],
    236: [
        "compatibility.test_device_state::test_a_release_of_a_later_format_stops_an_older_device_and_stays",
        "edge_client.state.test_state_version::test_a_predictor_does_not_open_it",
        "edge_client.state.test_state_version::test_no_command_touches_the_state_of_a_later_release",
    ],
}


def test_every_fault_of_the_document_has_its_tests() -> None:
    assert sorted(int(number) for number in ROW.findall(DOCUMENT.read_text())) == sorted(TESTS)
    assert [number for number, tests in TESTS.items() if not tests] == []


def test_the_operators_guide_lists_every_line_that_needs_action() -> None:
    """Compare by the constant pieces of each line."""
    guide = (DOCUMENT.parent / "operations.md").read_text()
    sources = [path.read_text() for path in (TESTS_DIRECTORY.parent / "coordinator").rglob("*.py")]
    lines = [pieces for source in sources for node in ast.walk(ast.parse(source)) if (pieces := _logged(node))]
    assert len(lines) > 15, "the log is written in another way now"
    assert [pieces for pieces in lines if not any(piece in guide for piece in pieces)] == []


def _logged(node: ast.AST) -> list[str]:
    """Return the constant pieces of a warning or error logged there, if they are long enough."""
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


def test_each_test_of_the_map_is_there() -> None:
    defined: dict[str, set[str]] = {}
    for module, _, name in sorted({tuple(test.partition("::")) for tests in TESTS.values() for test in tests}):
        if module not in defined:
            source = TESTS_DIRECTORY.joinpath(*module.split(".")).with_suffix(".py").read_text()
            defined[module] = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
        assert name in defined[module], f"{module}::{name}"
