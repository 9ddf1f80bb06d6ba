"""A round's steps as one CUDA graph: the first steps warm up, the next one is captured and then replayed.

A small network's step takes longer to launch, kernel by kernel, than to compute; a replay is one launch. The
hyperparameters are constants of a captured step, and the optimiser's moments are new in every round, so each round
captures its own graph. Source: "CUDA semantics: CUDA Graphs" in PyTorch's documentation.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

from moonfed.errors import MoonfedError

WARM_UP = 3  # steps, in which libraries initialise and select kernels
WORTHWHILE = 10  # steps of a round: a capture takes about as long as a few of them
AHEAD = 2  # steps that the host may run ahead of the accelerator under a time limit
_WAITED = "called a synchronizing CUDA operation"  # how torch's sync debug mode begins

Run = Callable[[], object]  # one step on buffers at fixed addresses

_broken: list[torch.cuda.CUDAGraph] = []  # torch's allocator keeps querying a graph whose capture did not end
_log = logging.getLogger(__name__)


class StepCapture:
    """Captures the steps of one process's rounds; stops capturing for good after the first failure.

    After a failed capture, torch's state is good enough to continue, but not to capture again.
    """

    def __init__(self, capture: Callable[[Run], Run], rehearse: Callable[[Run], str]) -> None:
        """`capture` records a step without executing it and returns what replays it; it may raise anything.

        `rehearse` executes a step and returns the reason why it cannot be captured; empty if it can.
        """
        self._capture, self._rehearse = capture, rehearse
        self._failed = False

    def rehearse(self, run: Run) -> None:
        """Execute a step and find out whether it can be captured."""
        if self._failed:
            run()
        elif reason := self._rehearse(run):
            self._fail(reason)

    def captured(self, run: Run) -> Run:
        """Return the step's replay, or the step itself if it cannot be captured; neither has been executed."""
        if self._failed:
            return run
        try:
            return self._capture(run)
        except Exception as error:
            self._fail(_first_reason(error))
            return run

    def _fail(self, reason: str) -> None:
        self._failed = True
        _log.warning("launching steps kernel by kernel, because a CUDA graph cannot capture them: %s", reason)


class Launcher:
    """Launches a round's steps, one with each call."""

    def __init__(self, run: Run, graphs: StepCapture | None = None, limiter: LaunchLimiter | None = None) -> None:
        """Without `graphs`, steps are launched kernel by kernel; without `limiter`, the host may run ahead freely."""
        self._run = run
        self._graphs = graphs
        self._limiter = limiter
        self._launched = 0

    def __call__(self) -> None:
        """Launch the next step."""
        self._launched += 1
        if self._graphs is not None and self._launched == WARM_UP + 1:
            self._run = self._graphs.captured(self._run)
        if self._graphs is not None and self._launched == WARM_UP:
            self._graphs.rehearse(self._run)
        else:
            self._run()
        if self._limiter is not None:
            self._limiter.wait()


def launcher(run: Run, steps: int, device: torch.device, graphs: StepCapture | None, timed: bool) -> Launcher:
    """Return a launcher for `steps` steps; `timed`: whether there is a time limit. Capture needs CUDA."""
    if device.type != "cuda":
        return Launcher(run)
    return Launcher(run, graphs if steps >= WORTHWHILE else None, LaunchLimiter() if timed else None)


class LaunchLimiter:
    """Keeps the host close to the accelerator, so that a step launched in time also ends in time."""

    def __init__(self) -> None:
        self._events = [torch.cuda.Event() for _ in range(AHEAD)]  # type: ignore[no-untyped-call]
        self._steps = 0

    def wait(self) -> None:
        """Wait, after a launch, until the accelerator is less than AHEAD steps behind."""
        self._events[self._steps % AHEAD].record()
        self._steps += 1
        self._events[self._steps % AHEAD].synchronize()


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Run the body on the round's own stream: the default stream cannot be captured."""
    if device.type != "cuda":
        yield
        return
    stream, usual = _stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(usual)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        usual.wait_stream(stream)


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream of the process: torch keeps freed memory for the stream that used it."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def capture_on_cuda(run: Run) -> Run:
    """Capture a step in a CUDA graph on the current stream; each replay draws new random numbers."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            run()
    except Exception:
        _broken.append(graph)
        _leave_capture()
        raise
    return graph.replay


def _leave_capture() -> None:
    """Make a trivial capture after a broken one; else some versions of torch keep the generator captured."""
    with suppress(RuntimeError):  # capturing itself does not work here
        graph, scrap = torch.cuda.CUDAGraph(), torch.zeros((), device="cuda")
        graph.capture_begin()
        scrap.zero_()
        graph.capture_end()


def rehearse_on_cuda(run: Run) -> str:
    """Execute a step while torch reports every wait of the host for the accelerator, as in `.item()`."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    waits = any(str(warning.message).startswith(_WAITED) for warning in caught)
    return "the plan's step waits for the accelerator" if waits else ""


def _first_reason(error: BaseException) -> str:
    """Return the first error's line: ending a broken capture fails as well."""
    chain = [error]
    while chain[-1].__context__ is not None:
        chain.append(chain[-1].__context__)
    first = next((cause for cause in chain if isinstance(cause, MoonfedError)), chain[-1])
    lines = str(first).strip().splitlines()
    return lines[0] if lines else type(first).__name__


CUDA_GRAPHS = StepCapture(capture_on_cuda, rehearse_on_cuda)  # this process'
