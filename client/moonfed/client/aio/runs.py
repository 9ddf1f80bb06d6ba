"""The asynchronous client's calls about runs."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from moonfed.blobs.store import BlobRef
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.bundle.manifest import Manifest
from moonfed.client.aio.connection import AsyncConnection
from moonfed.client.aio.watch import AsyncWatch
from moonfed.client.recipe import settings_text
from moonfed.client.uploads import bundle_files
from moonfed.control.codec import from_message
from moonfed.control.evaluations import Evaluation
from moonfed.control.events import Event
from moonfed.control.privacy import PrivacyReport
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Round, Run
from moonfed.errors import NotFound
from moonfed.signing.bundle_signature import signed_by
from moonfed.v1 import control_pb2

if TYPE_CHECKING:
    from moonfed.client.weights import Initial, Weights

MODELS_NAMED = 10  # in an error message
POLL_SECONDS = 0.5  # between two looks at an evaluation


class AsyncRunCalls:
    """Runs, their rounds, models and evaluations."""

    connection: AsyncConnection

    async def start(
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
            run = await coordinator.start("digits-bundle", name="digits", rounds=10, minimum_devices=3, cohort="50%")
        """
        opened = bundle if isinstance(bundle, Bundle) else read_bundle(Path(bundle), signed_by(None))
        chosen = settings_text(Path(recipe) if isinstance(recipe, str) else recipe, settings)
        with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
            weights: dict[BlobRef, Path] = {}
            model = ""
            if isinstance(initial, str):
                model = (await self.run(initial)).model.sha256
            elif initial is not None:
                from moonfed.client.weights import initial_file  # and numpy, which few calls need

                weights = initial_file(initial, opened.manifest.tensors, Path(directory) / "weights")
                model = next(iter(weights)).sha256
            request = control_pb2.StartRunRequest(name=name, model=model, settings=chosen, allow_empty=allow_empty)
            return await start_run(self.connection, opened, weights, request)

    async def runs(self) -> list[Run]:
        """List all runs, oldest first.

        Example:
            active = [run.run for run in await coordinator.runs() if run.active]
        """
        request, kind = control_pb2.ListRunsRequest(), control_pb2.ListRunsReply
        reply = await self.connection.ask(kind, "ListRuns", request)
        return [from_message(Run, message) for message in reply.runs]

    async def run(self, run: str) -> Run:
        """Return one run; raises NotFound.

        Example:
            print((await coordinator.run("digits")).waiting)
        """
        return await self.connection.ask(Run, "GetRun", control_pb2.GetRunRequest(run=run))

    async def privacy(self, run: str = "", *, delta: float = 0.0) -> PrivacyReport:
        """Return what all runs have spent of differential privacy, together; or those of one name, deleted ones, too.

        `delta`: at which they are composed; 0: the smallest of theirs. Raises NotFound if there was no such run.

        Example:
            print((await coordinator.privacy()).epsilon)
        """
        return await self.connection.ask(
            PrivacyReport, "GetPrivacy", control_pb2.GetPrivacyRequest(run=run, delta=delta)
        )

    async def pause(self, run: str) -> Run:
        """Pause a run: no more work is assigned; work in progress is finished and counts.

        Example:
            await coordinator.pause("digits")
        """
        return await self.connection.ask(Run, "PauseRun", control_pb2.PauseRunRequest(run=run))

    async def resume(self, run: str) -> Run:
        """Resume a paused run.

        Example:
            await coordinator.resume("digits")
        """
        return await self.connection.ask(Run, "ResumeRun", control_pb2.ResumeRunRequest(run=run))

    async def stop(self, run: str) -> Run:
        """Stop a run for good; its global models stay.

        Example:
            await coordinator.stop("digits")
        """
        return await self.connection.ask(Run, "StopRun", control_pb2.StopRunRequest(run=run))

    async def delete(self, run: str) -> int:
        """Delete a run that has ended, with its rounds and models; return the bytes freed.

        Example:
            freed = await coordinator.delete("digits")
        """
        request, kind = control_pb2.DeleteRunRequest(run=run), control_pb2.DeleteRunReply
        return (await self.connection.ask(kind, "DeleteRun", request, once=True)).bytes

    async def rounds(self, run: str, *, last: int = 0, round: int = 0) -> list[Round]:  # noqa: A002
        """List a run's committed and abandoned rounds, oldest first; only the `last` of them unless that is 0.

        `round`: only the attempts at this round, unless that is 0.

        Example:
            pandas.DataFrame(await coordinator.rounds("digits")).plot(x="round", y="accuracy")
        """
        request = control_pb2.ListRoundsRequest(run=run, last=last, round=round)
        return await self.connection.ask_all(Round, "ListRounds", request)

    def watch(self, run: str, *, progress: bool = True) -> AsyncIterator[Event]:
        """Yield a run's events until it has ended; the last one is always `Ended`.

        The first is a `Snapshot`. When the connection is lost, for example because the coordinator restarts, an
        `Interrupted` follows, then the `RoundCommitted` of every round that was missed, and another `Snapshot`.
        `progress`: also yield `Progress` events; a large fleet sends many. Raises NotFound for an unknown run.

        Example:
            async for event in coordinator.watch("digits"):
                match event:
                    case RoundCommitted(round=number, metrics=metrics):
                        print(number, metrics)
                    case Ended(run=run):
                        print(run.status, run.reason)
        """
        return AsyncWatch(self.connection, run, progress=progress).events()

    async def weights(self, run: str, *, round: int | None = None) -> Weights:  # noqa: A002 - as everywhere
        """Fetch a global model, by default the newest, as an array for each tensor; its sha256 is verified.

        `round`: 0 for the initial weights. Raises NotFound if there is no such model, or none any longer.

        Example:
            weights = await coordinator.weights("digits")
            norms = {name: float(numpy.linalg.norm(values)) for name, values in weights.items()}
        """
        from moonfed.client.weights import read_weights  # and numpy

        found = await self.run(run)
        ref = await find_model(self, found, found.round if round is None else round)
        manifest = Manifest.from_bytes(await self.connection.fetch(found.manifest))
        return read_weights(await self.connection.fetch(ref), manifest.tensors)

    async def record_metrics(
        self,
        run: str,
        metrics: Mapping[str, float],
        *,
        round: int | None = None,  # noqa: A002 - as everywhere
    ) -> None:
        """Record metrics of a global model, by default the newest, in place of earlier ones of the same names.

        They are in `rounds`, in `run show`, in the console, in trackers, and may end the run: see docs/runs.md. The
        least role is evaluator. Raises NotFound if there is no such model, InvalidInput for a metric that is no finite
        number.

        Example:
            await coordinator.record_metrics("digits", {"f1": 0.93})
        """
        number = (await self.run(run)).round if round is None else round
        request = control_pb2.RecordMetricsRequest(run=run, round=number, metrics=metrics)
        await self.connection.ask(control_pb2.RecordMetricsReply, "RecordMetrics", request)

    async def evaluate(
        self,
        run: str,
        *,
        round: int | None = None,  # noqa: A002
        deadline: float = 3600.0,
        again: bool = False,
        without_privacy: bool = False,
        wait: bool = True,
    ) -> Evaluation:
        """Have devices score a global model, by default the newest, on their holdouts.

        `deadline`: seconds until the evaluation ends without the devices that are missing. `again`: repeat one that
        has ended. `without_privacy`: also in a run with differential privacy, which the scores do not have; its ledger
        names them. `wait`: return when it has ended, not when it has begun.

        Example:
            print((await coordinator.evaluate("digits", deadline=600)).value)
        """
        request = control_pb2.EvaluateRunRequest(
            run=run, round=round, deadline_seconds=deadline, again=again, without_privacy=without_privacy
        )
        found = await self.connection.ask(Evaluation, "EvaluateRun", request)
        while wait and found.on_devices and not found.on_devices.closed:
            await self.connection.sleep(POLL_SECONDS)
            listed = await self.evaluations(run)
            same = [one for one in listed if one.on_devices and one.round == found.round]
            if not same:
                raise NotFound(f"the evaluation of global model {found.round} of run {run!r} was deleted")
            found = same[-1]
        return found

    async def evaluations(self, run: str) -> list[Evaluation]:
        """List the evaluations of a run's global models, on test sets and on devices, by round.

        Example:
            on_tests = [found for found in await coordinator.evaluations("digits") if found.test_set]
        """
        request = control_pb2.ListEvaluationsRequest(run=run)
        return await self.connection.ask_all(Evaluation, "ListEvaluations", request)


async def start_run(
    connection: AsyncConnection, bundle: Bundle, weights: Mapping[BlobRef, Path], request: control_pb2.StartRunRequest
) -> Run:
    """Upload a bundle, and files with initial weights, and start a run; `request`: without the bundle's files."""
    # The upload retries for a long time; an unreachable coordinator must fail at once.
    await connection.ask(control_pb2.ListRunsReply, "ListRuns", control_pb2.ListRunsRequest())
    with bundle_files(bundle) as files:
        await connection.upload({**files, **weights})
    request.manifest, request.signature = bundle.ref.sha256, bundle.signature_sha256
    return await connection.ask(Run, "StartRun", request, once=True)


async def find_model(client: AsyncRunCalls, found: Run, number: int) -> BlobRef:
    """Return the global model of a round; raise NotFound if there is none, or none any longer."""
    if number == found.round:
        return found.model
    if number == 0:
        return found.initial_model
    if not 0 < number < found.round:
        raise NotFound(
            f"run {found.run!r} has no global model of round {number}; its newest is {found.round}",
            field="run",
            value=found.run,
        )
    for one in await client.rounds(found.run, round=number):
        if one.model:
            return one.model
    kept = [one.round for one in await client.rounds(found.run) if one.model]
    newest = ", ".join(map(str, kept[-MODELS_NAMED:]))
    raise NotFound(f"the global model of round {number} of run {found.run!r} was deleted; the newest are {newest}")
