"""The order of tasks, and which of them supersede others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.edge_client.agent.inbox import MAX_WAITING, Inbox, Task
from moonfed.fleet.assignment import Assignment, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.fleet.target_release import TargetRelease


def check_of(work: Assignment) -> EligibilityCheck:
    return EligibilityCheck(run=work.run, manifest=work.manifest, signature=work.signature)


def test_checks_come_first_and_supersede_nothing(assignment: Assignment) -> None:
    inbox, check = Inbox(), check_of(assignment)
    inbox.put(assignment)
    assert inbox.next_task(0) == assignment
    inbox.put(RunEnded(run="another"))
    inbox.put(replace(check, run="third"))
    inbox.put(check)
    assert not inbox.superseded()
    assert [inbox.next_task(0) for _ in range(4)] == [
        replace(check, run="third"),
        check,
        RunEnded(run="another"),
        None,
    ]
    assert inbox.idle()


def test_a_newer_task_of_the_run_supersedes_the_current_one(assignment: Assignment) -> None:
    inbox = Inbox()
    inbox.put(assignment)
    inbox.next_task(0)
    inbox.put(assignment)  # again, as after a reconnect
    assert not inbox.superseded()
    inbox.put(RunEnded(run=assignment.run))
    assert inbox.superseded()


def test_a_check_that_is_repeated_while_it_is_answered_is_answered_again(assignment: Assignment) -> None:
    inbox, check = Inbox(), check_of(assignment)
    inbox.put(check)
    assert inbox.next_task(0) == check
    inbox.put(check)
    inbox.put(check)
    assert [inbox.next_task(0) for _ in range(2)] == [check, None]


def test_an_evaluation_comes_last_and_makes_way(assignment: Assignment) -> None:
    inbox = Inbox()
    task = EvaluationTask(
        run=assignment.run, round=3, number=1, manifest=assignment.manifest, model=assignment.blobs["model"], seed=7
    )
    newer, other = replace(task, number=2), replace(task, round=4)
    inbox.put(task)
    inbox.put(other)
    inbox.put(assignment)
    assert [inbox.next_task(0), inbox.has_more_urgent()] == [assignment, False]
    assert inbox.next_task(0) == task
    assert not inbox.superseded()  # by the evaluation of another model
    assert not inbox.has_more_urgent()
    inbox.put(RunEnded(run=assignment.run))
    assert inbox.has_more_urgent()
    assert not inbox.superseded()
    inbox.put_back(task)
    assert [inbox.next_task(0) for _ in range(4)] == [RunEnded(run=assignment.run), other, task, None]
    inbox.put(task)
    inbox.next_task(0)
    inbox.put(newer)
    assert inbox.superseded()
    inbox.put_back(task)  # which the newer one replaces
    assert [inbox.next_task(0), inbox.next_task(0)] == [newer, None]


def test_targets_wait_for_runs_and_give_way_to_them(assignment: Assignment) -> None:
    inbox, target = Inbox(), TargetRelease(name="digits", deployment=1)
    inbox.put(target)
    inbox.put(replace(target, name=assignment.run))  # a release may have a run's name
    inbox.put(assignment)
    assert inbox.next_task(0) == assignment
    assert inbox.next_task(0) == target
    assert not inbox.has_more_urgent()
    inbox.put(RunEnded(run="another"))
    assert inbox.has_more_urgent()
    assert not inbox.superseded()
    inbox.put_back(target)
    assert [inbox.next_task(0) for _ in range(3)] == [
        RunEnded(run="another"),
        replace(target, name=assignment.run),
        target,
    ]


def test_a_newer_target_supersedes_the_current_one_of_its_name() -> None:
    inbox, target = Inbox(), TargetRelease(name="digits", deployment=1)
    inbox.put(target)
    inbox.next_task(0)
    inbox.put(replace(target, name="other"))
    assert not inbox.superseded()
    inbox.put(replace(target, deployment=2))
    assert inbox.superseded()
    inbox.put_back(target)
    assert [inbox.next_task(0) for _ in range(3)] == [
        replace(target, name="other"),
        replace(target, deployment=2),
        None,
    ]


@pytest.mark.parametrize("kind", ["checks", "assignments", "ended runs", "targets"])
def test_the_number_of_waiting_tasks_is_bounded(kind: str, assignment: Assignment) -> None:
    """A coordinator may name any number of runs and releases."""
    inbox = Inbox()
    for number in range(2 * MAX_WAITING):
        run = f"run-{number}"
        made: dict[str, Task] = {
            "checks": replace(check_of(assignment), run=run),
            "assignments": replace(assignment, id=replace(assignment.id, run=run)),
            "ended runs": RunEnded(run=run),
            "targets": TargetRelease(name=run, deployment=1),
        }
        inbox.put(made[kind])
    inbox.put(assignment)
    waiting = []
    while (task := inbox.next_task(0)) is not None:
        waiting.append(task)
    assert len(waiting) == MAX_WAITING
