"""The application: routes, errors, headers and the page, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from api import problems
from api.body_limit import BodyLimitMiddleware
from api.head import HeadMiddleware
from api.headers import HeadersMiddleware
from api.routes import events, health, predictions, studies
from tuner.store.repository import Repository


def create_app(repository: Repository) -> FastAPI:
    """Build the application over a store. It never imports Ray, Optuna's samplers or torch at work.

    Args:
        repository: The store, at the right revision.
    """
    app = FastAPI(
        title="Paretune",
        version=version("paretune"),
        summary="The time-energy Pareto frontier of an LLM training job, measured.",
        responses=problems.RESPONSES,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    app.state.repository = repository
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.add_middleware(BodyLimitMiddleware)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(HeadersMiddleware)
    problems.install(app)
    app.state.routes = []
    for module in (studies, predictions, events, health):
        app.include_router(module.router)
        app.state.routes += module.router.routes
    _serve_page(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Made here, not in create_app: it belongs to the event loop that serves.
    app.state.closing = asyncio.Event()
    yield
    app.state.repository.close()


def _serve_page(app: FastAPI) -> None:
    folder = Path(str(resources.files("api").joinpath("web")))
    app.mount("/static", StaticFiles(directory=folder), name="static")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(folder / "index.html")
