"""Whether the service is alive, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.deps import Store
from tuner.store.migrate import check_revision

router = APIRouter(tags=["health"])


class HealthAnswer(BaseModel):
    """Alive."""

    status: str = "ok"


class ReadinessAnswer(BaseModel):
    """Able to work."""

    status: str = "ok"
    database: str = Field(description="Revision of the database schema.")
    dispatchers: int = Field(description="Dispatchers that hold a study at this moment.")


@router.get("/healthz")
def healthz() -> HealthAnswer:
    """The process answers."""
    return HealthAnswer()


@router.get("/readyz")
def readyz(store: Store) -> ReadinessAnswer:
    """The database answers, at the right revision; 503 where it does not."""
    return ReadinessAnswer(database=check_revision(store.engine), dispatchers=store.live_owners())
