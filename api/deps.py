"""What routes are given."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from tuner.store.repository import Repository


def _repository(request: Request) -> Repository:
    repository: Repository = request.app.state.repository
    return repository


Store = Annotated[Repository, Depends(_repository)]
