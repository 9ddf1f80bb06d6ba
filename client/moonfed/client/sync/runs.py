"""The synchronous client's calls about runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from moonfed.bundle.files import Bundle
from moonfed.client.calls import runs as calls
from moonfed.client.calls.runs import Initial, Weights
from moonfed.client.records.evaluations import Evaluation
from moonfed.client.records.events import Event
from moonfed.client.records.runs import Round, Run
from moonfed.client.sync.caller import Caller
from moonfed.control.run_settings import RunSettings


class RunCalls(Caller):
    """Runs, their rounds, models and evaluations."""

    def start(
        self,
        bundle: str | Path | Bundle,
        *,
        name: str = "",
        initial: Initial | None = None,
        recipe: str | Path | RunSettings | None = None,
        allow_empty: bool = False,
        **settings: object,
    ) -> Run:
        """Start a run from a signed bundle, which is uploaded: a directory, a .zip, or what `build_bundle` returns.

        `name`: of the run; by default, derived from the bundle's. `initial`: weights to begin with, as another run's
        name, a .safetensors file (a `Path`) or a dict of arrays such as `weights` returns; by default, the bundle's.
        `recipe`: a file in TOML, or another run's `settings`; `settings` override it, by the names of RunSettings and
        with the values of `moonfed-coordinator run start`, whose defaults those in neither keep. `allow_empty`: start
        even if no known device has the labels.

        Raises InvalidInput naming a setting that is not allowed, UntrustedBundle for a bundle that is not signed,
        AlreadyExists if the name is taken.

        Example:
            run = coordinator.start("digits-bundle", name="digits", rounds=10, minimum_devices=3, cohort="50%")
        """
        chosen = bundle if isinstance(bundle, Bundle) else Path(bundle)
        file = Path(recipe) if isinstance(recipe, str) else recipe
        return self._do(calls.start(chosen, name, initial, file, settings, allow_empty=allow_empty))

    def runs(self) -> list[Run]:
        """List all runs, oldest first.

        Example:
            active = [run.run for run in coordinator.runs() if run.active]
        """
        return self._do(calls.runs())

    def run(self, run: str) -> Run:
        """Return one run; raises NotFound.

        Example:
            print(coordinator.run("digits").waiting)
        """
        return self._do(calls.run(run))

    def pause(self, run: str) -> Run:
        """Pause a run: no more work is assigned; work in progress is finished and counts.

        Example:
            coordinator.pause("digits")
        """
        return self._do(calls.pause(run))

    def resume(self, run: str) -> Run:
        """Resume a paused run.

        Example:
            coordinator.resume("digits")
        """
        return self._do(calls.resume(run))

    def stop(self, run: str) -> Run:
        """Stop a run for good; its global models stay.

        Example:
            coordinator.stop("digits")
        """
        return self._do(calls.stop(run))

    def delete(self, run: str) -> int:
        """Delete a run that has ended, with its rounds and models; return the bytes freed.

        Example:
            freed = coordinator.delete("digits")
        """
        return self._do(calls.delete(run))

    def rounds(self, run: str, *, last: int = 0, round: int = 0) -> list[Round]:  # noqa: A002
        """List a run's committed and abandoned rounds, oldest first; only the `last` of them unless that is 0.

        `round`: only the attempts at this round, unless that is 0.

        Example:
            pandas.DataFrame(coordinator.rounds("digits")).plot(x="round", y="accuracy")
        """
        return self._do(calls.rounds(run, last, round))

    def watch(self, run: str, *, progress: bool = True) -> Iterator[Event]:
        """Yield a run's events until it has ended; the last one is always `Ended`.

        The first is a `Snapshot`. When the connection is lost, for example because the coordinator restarts, an
        `Interrupted` follows, then the `RoundCommitted` of every round that was missed, and another `Snapshot`.
        `progress`: also yield `Progress` events; a large fleet sends many. Raises NotFound for an unknown run.

        Example:
            for event in coordinator.watch("digits"):
                match event:
                    case RoundCommitted(round=number, metrics=metrics):
                        print(number, metrics)
                    case Ended(run=run):
                        print(run.status, run.reason)
        """
        return self._watch(run, progress=progress)

    def weights(self, run: str, *, round: int | None = None) -> Weights:  # noqa: A002 - as everywhere
        """Fetch a global model, by default the newest, as an array for each tensor; its sha256 is verified.

        `round`: 0 for the initial weights. Raises NotFound if there is no such model, or none any longer.

        Example:
            weights = coordinator.weights("digits")
            norms = {name: float(numpy.linalg.norm(values)) for name, values in weights.items()}
        """
        return self._do(calls.weights(run, round))

    def evaluate(
        self,
        run: str,
        *,
        round: int | None = None,  # noqa: A002
        deadline: float = 3600.0,
        again: bool = False,
        wait: bool = True,
    ) -> Evaluation:
        """Have devices score a global model, by default the newest, on their holdouts.

        `deadline`: seconds until the evaluation ends without the devices that are missing. `again`: repeat one that
        has ended. `wait`: return when it has ended, not when it has begun.

        Example:
            print(coordinator.evaluate("digits", deadline=600).accuracy)
        """
        return self._do(calls.evaluate(run, round, deadline, again=again, wait=wait))

    def evaluations(self, run: str) -> list[Evaluation]:
        """List the evaluations of a run's global models, on test sets and on devices, by round.

        Example:
            on_tests = [found for found in coordinator.evaluations("digits") if found.test_set]
        """
        return self._do(calls.evaluations(run))
