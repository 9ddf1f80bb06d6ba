"""Capture of a round's steps: after a warm-up, without losing a step, and never where capture is impossible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.edge_client.training.batches import BatchFeed
from moonfed.edge_client.training.cuda_graph import (
    WARM_UP,
    WORTHWHILE,
    Launcher,
    Run,
    StepCapture,
    capture_on_cuda,
    launcher,
    own_stream,
    rehearse_on_cuda,
)
from moonfed.edge_client.training.data_placement import Memory
from moonfed.edge_client.training.local_training import Samples, Trained, train_round
from moonfed.edge_client.training.rng import epoch_batches
from moonfed.errors import TrainingFailed
from moonfed.export.methods import METHODS
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.export.preprocessing import build_preprocessing
from moonfed.plan.interface import TorchScriptPlan, load_torchscript_plan
from tests.support.recording import RecordingPlan, numbered, settings, train

CPU = torch.device("cpu")
FEATURES = InputSpec(kind="features", shape=(6,))
HYPERPARAMETERS = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "mu": 1.0, "tau": 0.5}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Tape:
    """Fake graphs: capture executes nothing, replay calls the step; calls are recorded."""

    def __init__(self, capture_fails: Exception | None = None, rehearsal: str = "") -> None:
        self.calls: list[str] = []
        self._error, self._rehearsal = capture_fails, rehearsal
        self.graphs = StepCapture(self._capture, self._rehearse)

    def _capture(self, run: Run) -> Run:
        self.calls.append("capture")
        if self._error is not None:
            raise self._error

        def replay() -> None:
            self.calls.append("replay")
            run()

        return replay

    def _rehearse(self, run: Run) -> str:
        self.calls.append("rehearse")
        run()
        return self._rehearsal

    def play(self, steps: int) -> None:
        """Launch steps as a round does."""
        launch = Launcher(lambda: self.calls.append("step"), self.graphs)
        for _ in range(steps):
            launch()


def test_the_first_steps_warm_up_and_the_next_is_captured_and_replayed() -> None:
    tape = Tape()
    tape.play(6)
    warm_up = ["step", "step", "rehearse", "step"]
    assert WARM_UP == 3
    assert tape.calls == [*warm_up, "capture", *["replay", "step"] * 3]
    tape.calls.clear()
    tape.play(5)  # another round captures again
    assert tape.calls == [*warm_up, "capture", *["replay", "step"] * 2]


@pytest.mark.parametrize(
    ("tape", "calls"),
    [
        (Tape(capture_fails=RuntimeError("out of graphs\nand of luck")), ["rehearse", "step", "capture"]),
        (Tape(rehearsal="out of graphs"), ["rehearse", "step"]),
    ],
)
def test_a_step_that_cannot_be_captured_is_launched_as_it_is_with_one_warning(
    tape: Tape, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tape.play(6)
        assert tape.calls == ["step", "step", *calls, *["step"] * 3], "each step exactly once"
        tape.calls.clear()
        tape.play(5)
    assert tape.calls == ["step"] * 5, "nor is any other round's"
    assert caplog.messages == [
        "launching steps kernel by kernel, because a CUDA graph cannot capture them: out of graphs"
    ]


@pytest.mark.parametrize(
    ("plans_own", "reason"),
    [(None, "not permitted"), (TrainingFailed("the plan could not take a step"), "the plan could not take a step")],
)
def test_the_reason_is_the_first_error(
    plans_own: Exception | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        try:
            raise RuntimeError("not permitted\nand pages of TorchScript")
        except RuntimeError as error:
            if plans_own:
                raise plans_own from error
            raise

    def capture(run: Run) -> Run:
        try:
            broken()
        except Exception:
            raise RuntimeError("the capture could not end") from None  # as torch.cuda.graph does at its end
        return run

    assert StepCapture(capture, lambda _: "").captured(print) is print
    assert caplog.messages[0].endswith(f"a CUDA graph cannot capture them: {reason}")


def test_a_failing_step_is_not_reported_as_a_failed_capture() -> None:
    def fail() -> None:
        raise TrainingFailed("a step failed")

    with pytest.raises(TrainingFailed, match="a step failed"):
        Launcher(fail, Tape().graphs)()


def test_short_rounds_and_cpus_capture_nothing() -> None:
    cuda = torch.device("cuda")
    for steps, device, captures in ((WORTHWHILE, cuda, 1), (WORTHWHILE - 1, cuda, 0), (WORTHWHILE, CPU, 0)):
        tape = Tape()
        launch = launcher(lambda: None, steps, device, tape.graphs, timed=False)
        for _ in range(steps):
            launch()
        assert tape.calls.count("capture") == captures


def test_on_a_cpu_a_round_has_no_stream_of_its_own() -> None:
    with own_stream(CPU):
        assert torch.ones(1).item() == 1.0


class Encoder(torch.nn.Module):
    """Six features to eight; half of them dropped at random in training, or with a wait for the accelerator."""

    def __init__(self, *, dropout: float, waits: bool) -> None:
        super().__init__()
        self.linear, self.dropout, self.waits = torch.nn.Linear(6, 8), torch.nn.Dropout(dropout), waits

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.dropout(torch.relu(self.linear(inputs)))
        if self.waits and features.sum().item() < -1.0:  # never: they are positive
            features = -features
        return features


Maker = Callable[..., tuple[TorchScriptPlan, list[torch.Tensor]]]


@pytest.fixture
def new_plan(tmp_path: Path) -> Maker:
    """MOON's plan on a device, and a model for it."""

    def make(device: str, *, dropout: float = 0.0, waits: bool = False) -> tuple[TorchScriptPlan, list[torch.Tensor]]:
        torch.manual_seed(3)
        network = Network(
            build_preprocessing(FEATURES),
            Encoder(dropout=dropout, waits=waits),
            torch.nn.Linear(8, 4),
            torch.nn.Linear(4, 3),
        )
        save_plan(tmp_path / "plan.pt", compile_plan(network, METHODS["moon"](), HYPERPARAMETERS, model="tested"))
        model = [tensor.detach().clone() for tensor in exchanged_tensors(network).values()]
        return load_torchscript_plan(tmp_path / "plan.pt", device), model

    return make


def clouds(count: int = 100) -> Samples:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 3, (count,), generator=generator)
    return Samples(inputs=torch.randn(count, 6, generator=generator) + 2 * torch.eye(6)[labels], targets=labels)


CHOSEN = settings(epochs=3, batch_size=8, hyperparameters=HYPERPARAMETERS)


def trained(made: tuple[TorchScriptPlan, list[torch.Tensor]], data: Samples, graphs: StepCapture | None) -> Trained:
    plan, model = made
    previous = [[tensor + 0.1 for tensor in model]]
    return train_round(
        plan, data, model=model, previous_models=previous, received={}, settings=CHOSEN, graphs=graphs,
        accelerator=torch.device("cuda") if torch.cuda.is_available() else None,
    )  # fmt: skip


def test_replays_on_the_feeds_buffers_train_like_steps_on_their_own(new_plan: Maker) -> None:
    """On a CPU, with a tape instead of a graph: the captured step sees all batches, since the buffers stay the same."""
    plan, model = new_plan("cpu")
    data, tape, previous = clouds(), Tape(), [[tensor + 0.1 for tensor in model]]
    expected = train_round(plan, data, model=model, previous_models=previous, received={}, settings=CHOSEN)
    plan.begin_round(model, previous, {}, HYPERPARAMETERS)
    feed = BatchFeed(plan, data, CHOSEN, CPU, Memory(host=10**12), lambda: None)
    launch = Launcher(lambda: plan.step(*feed.batch), tape.graphs)
    for epoch in (1, 2, 3):
        batches = epoch_batches(len(data), CHOSEN, epoch)
        feed.begin(epoch, batches)
        for _ in batches:
            feed.fill()
            launch()
    assert tape.calls.count("replay") == 3 * 12 - WARM_UP
    for left, right in zip(plan.end_round(36)["model"], expected.results["model"], strict=True):
        assert torch.equal(left, right)


def new_graphs() -> StepCapture:
    return StepCapture(capture_on_cuda, rehearse_on_cuda)


@needs_cuda
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("resident", [True, False])
def test_a_captured_round_is_the_same_as_one_launched_kernel_by_kernel(
    dropout: float, resident: bool, new_plan: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropout is included, since its random numbers are the same in a replay."""
    made, data = new_plan("cuda", dropout=dropout), clouds().to("cuda" if resident else "cpu")
    captured, plain = trained(made, data, new_graphs()), trained(made, data, None)
    assert not caplog.messages
    assert captured.loss == pytest.approx(plain.loss, rel=1e-5)
    for left, right in zip(captured.results["model"], plain.results["model"], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)
    again = trained(made, data, new_graphs())
    assert again.loss == pytest.approx(captured.loss, rel=1e-6)


@needs_cuda
def test_a_step_that_waits_for_the_accelerator_is_found_before_it_is_captured(
    new_plan: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, plain = new_plan("cuda", waits=True), new_plan("cuda")
    found = trained(waiting, clouds(), new_graphs())
    assert len(caplog.messages) == 1
    assert "the plan's step waits for the accelerator" in caplog.messages[0]
    assert found.loss == pytest.approx(trained(plain, clouds(), None).loss, rel=1e-5)


@needs_cuda
def test_a_failed_capture_leaves_no_half_applied_step_and_dropout_continues(
    new_plan: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    made = new_plan("cuda", dropout=0.5, waits=True)

    def rehearse(run: Run) -> str:  # overlooks the wait
        run()
        return ""

    found = trained(made, clouds(), StepCapture(capture_on_cuda, rehearse))
    assert len(caplog.messages) == 1
    assert found.loss == pytest.approx(trained(made, clouds(), None).loss, rel=1e-5)


@needs_cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("resident", [True, False])
def test_nothing_in_an_epoch_waits_for_the_accelerator(resident: bool, new_plan: Maker) -> None:
    plan, model = new_plan("cuda")
    cuda, previous = torch.device("cuda"), [[tensor + 0.1 for tensor in model]]
    plan.begin_round(model, previous, {}, HYPERPARAMETERS)
    memory = Memory(host=10**12, accelerator=10**9 if resident else 0)
    feed = BatchFeed(plan, clouds().to("cuda" if resident else "cpu"), CHOSEN, cuda, memory, lambda: None)
    losses = torch.zeros((), device=cuda)
    with own_stream(cuda):
        feed.begin(1, epoch_batches(100, CHOSEN, 1))  # computes the references
        feed.fill()
        plan.step(*feed.batch)
        feed.begin(2, epoch_batches(100, CHOSEN, 2))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(12):
                feed.fill()
                losses += plan.step(*feed.batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(losses)


@needs_cuda
def test_with_a_budget_of_seconds_steps_keep_pace_with_the_accelerator() -> None:
    class Slow(RecordingPlan):
        """A step of 10^8 cycles on the accelerator, which is 50 to 100 ms, and of none on the host."""

        def step(self, *batch: torch.Tensor) -> torch.Tensor:
            torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
            return torch.zeros((), device="cuda")

    cuda = torch.device("cuda")
    found = train(Slow(), numbered(400), settings(epochs=1, max_seconds=0.5), accelerator=cuda, graphs=None)
    assert found.steps < 20  # of a hundred
