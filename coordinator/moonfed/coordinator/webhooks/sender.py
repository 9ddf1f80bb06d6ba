"""Delivery of recorded events to the webhook's receiver: in order, at least once, independently of rounds."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from contextlib import suppress

import httpx

from moonfed.coordinator.storage.outbox import Delivery, Outbox
from moonfed.coordinator.support.error_log import log_error
from moonfed.coordinator.support.tasks import in_thread
from moonfed.coordinator.webhooks.receiver import Receiver
from moonfed.version import RELEASE

POLL_SECONDS = 0.5
ANSWER_SECONDS = 10.0  # for one attempt; a receiver should answer first, and work then
CLAIM_SECONDS = 30.0  # after which another coordinator delivers the event of one that has died
FIRST_SECONDS, LAST_SECONDS = 1.0, 300.0  # between attempts, doubled each time
MAX_AGE_SECONDS = 24 * 3600.0  # of an event that is given up
BUSY = (408, 425, 429)  # statuses of a receiver that asks for a retry; other 4xx refuse the event itself
_log = logging.getLogger(__name__)


class WebhookSender:
    """Sender of one coordinator's webhooks. Lives on one event loop."""

    def __init__(self, outbox: Outbox, receiver: Receiver) -> None:
        self._outbox, self._receiver = outbox, receiver
        self._failing, self._readable = False, True

    async def run(self) -> None:
        """Deliver events forever."""
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log the whole address
        logging.getLogger("httpcore").setLevel(logging.WARNING)
        headers = {"user-agent": f"moonfed/{RELEASE}"}
        limits = httpx.Limits(max_connections=1)
        # A proxy of the environment applies, except on this machine; redirects could lead anywhere.
        async with httpx.AsyncClient(
            headers=headers, follow_redirects=False, limits=limits, trust_env=not self._receiver.is_local
        ) as client:
            while True:
                if not await self._deliver_next(client):
                    await asyncio.sleep(POLL_SECONDS)

    async def _deliver_next(self, client: httpx.AsyncClient) -> bool:
        """Deliver an event, or postpone it; return False if none is due, or the database is unavailable."""
        try:
            delivery = await in_thread(self._outbox.claim, CLAIM_SECONDS)
            if delivery:
                await self._settle(delivery, await self._post(client, delivery))
        except Exception as error:
            if self._readable:
                log_error(_log, "cannot read the outbox of webhooks; its events are delivered later", error)
            self._readable = False
            return False
        self._readable = True
        return delivery is not None

    async def _post(self, client: httpx.AsyncClient, delivery: Delivery) -> int | str:
        """Return the status of the receiver's answer, or why there is none. The answer's body is not read."""
        body = delivery.body.encode()
        headers = self._receiver.headers(delivery.id, body, time.time())
        request = client.build_request(
            "POST", self._receiver.url, content=body, headers=headers, timeout=ANSWER_SECONDS
        )

        async def post() -> int:
            answer = await client.send(request, stream=True)
            with suppress(httpx.HTTPError):
                await answer.aclose()
            return answer.status_code

        try:
            return await asyncio.wait_for(post(), ANSWER_SECONDS)
        except asyncio.TimeoutError:
            return f"no answer within {ANSWER_SECONDS:g} s"
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}".replace(self._receiver.url, self._receiver.host)

    async def _settle(self, delivery: Delivery, outcome: int | str) -> None:
        if isinstance(outcome, int) and 200 <= outcome < 300:
            await in_thread(self._outbox.remove, delivery.number)
            if self._failing:
                _log.info("the webhook's receiver at %s accepts events again", self._receiver.host)
            self._failing = False
            return
        answer = f"status {outcome}" if isinstance(outcome, int) else outcome
        kind = json.loads(delivery.body)["type"]
        if delivery.age > MAX_AGE_SECONDS:
            _log.error(
                "gave up on event %s (%s): the webhook's receiver did not accept it: %s", delivery.id, kind, answer
            )
            await in_thread(self._outbox.remove, delivery.number)
            return
        refused = isinstance(outcome, int) and 400 <= outcome < 500 and outcome not in BUSY
        await in_thread(self._outbox.postpone, delivery.number, pause(delivery.attempts), refused=refused)
        if not self._failing:
            host = self._receiver.host
            _log.warning(
                "the webhook's receiver at %s did not accept event %s (%s): %s; retrying",
                host,
                delivery.id,
                kind,
                answer,
            )
        self._failing = True


def pause(attempts: int) -> float:
    """Return the seconds until the next attempt if `attempts` had failed before this one, with jitter."""
    return min(LAST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempts, 30)) * random.uniform(0.5, 1.0)
