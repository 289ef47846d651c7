"""Live events, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api.deps import Store
from api.routes.studies import Key
from api.schemas import EventAnswer
from tuner.errors import DatabaseUnavailable
from tuner.store.records import StudyRecord
from tuner.store.repository import Repository

router = APIRouter(prefix="/v1", tags=["events"])
_POLL_S = 0.5
_BATCH = 200
_LAST = 2**63 - 1
LastEventId = Annotated[int | None, Header(description="Sent by a browser that reconnects.", ge=0, le=_LAST)]
After = Annotated[
    int | None, Query(description="Id of the last event already known; only new ones by default.", ge=0, le=_LAST)
]


def _study(study: Key, store: Store) -> StudyRecord:
    """The study, found before the stream starts: afterwards an error could no longer be answered."""
    return store.study(study)


Followed = Annotated[StudyRecord, Depends(_study)]


@router.get("/events", response_class=EventSourceResponse)
async def all_events(
    request: Request, store: Store, last_event_id: LastEventId = None, after: After = None
) -> AsyncIterable[ServerSentEvent]:
    """Events of all studies, named by their kind."""
    async for event in _follow(request, store, None, last_event_id if last_event_id is not None else after):
        yield event


@router.get("/studies/{study}/events", response_class=EventSourceResponse)
async def study_events(
    request: Request, study: Followed, store: Store, last_event_id: LastEventId = None, after: After = None
) -> AsyncIterable[ServerSentEvent]:
    """Events of one study, named by their kind."""
    async for event in _follow(request, store, study.id, last_event_id if last_event_id is not None else after):
        yield event


async def _follow(
    request: Request, store: Repository, study_id: str | None, after: int | None
) -> AsyncIterable[ServerSentEvent]:
    """Events after one id as they come, until the client leaves or the server ends."""
    last = after
    closing: asyncio.Event = request.app.state.closing
    # Tells a client at once that the stream is open, and how soon to come back.
    yield ServerSentEvent(comment="open", retry=2000)
    while not closing.is_set():
        try:
            if last is None:
                last = await run_in_threadpool(store.last_event_id)
            events = await run_in_threadpool(store.events, last, study_id, _BATCH)
        except DatabaseUnavailable:
            # The stream has begun, so that no error can be answered: it goes on when the database does.
            events = []
        for event in events:
            last = event.id
            yield ServerSentEvent(data=EventAnswer.of(event), event=event.kind, id=str(event.id))
        try:
            await asyncio.wait_for(closing.wait(), _POLL_S)
        except TimeoutError:
            continue
