"""The whole way, with nothing replaced: REST, PostgreSQL, the dispatcher as a child process, Ray."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from builders import document
from databases import FreshDatabase
from server import Server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'paretune.db'}"
    databases: FreshDatabase = request.getfixturevalue("postgres_url")
    return databases(migrated=True)


def eventually(condition: Callable[[], bool], within_s: float = 90) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
    time_a, time_b = a["step_time_s"], b["step_time_s"]
    energy_a, energy_b = a["energy_j"], b["energy_j"]
    return time_a <= time_b and energy_a <= energy_b and (time_a < time_b or energy_a < energy_b)


def dispatcher_of(server: Server) -> int | None:
    """Process id of the dispatcher that the server started."""
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
        except OSError:
            continue
        if b"dispatch" in command and str(server.process.pid).encode() in command:
            return int(folder.name)
    return None


def test_a_study_created_by_rest_runs_to_its_end_through_a_killed_dispatcher_and_its_frontier_is_right(
    url: str,
) -> None:
    with Server(url, dispatcher=True) as server, httpx2.Client(base_url=server.url, timeout=20) as client:
        created = client.post("/v1/studies", json=document(budget={"trials": 8}, space={"microbatch": [1, 2]}))
        assert created.status_code == 201

        def counts() -> dict[str, int]:
            answer: dict[str, int] = client.get("/v1/studies/small").json()["counts"]
            return answer

        eventually(lambda: counts()["complete"] >= 2)
        killed = dispatcher_of(server)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: client.get("/v1/studies/small").json()["state"] == "completed")
        assert dispatcher_of(server) != killed
        trials = client.get("/v1/studies/small/trials").json()["trials"]
        assert [trial["number"] for trial in trials] == list(range(8))
        keys = [json.dumps(trial["configuration"]) for trial in trials]
        assert len(set(keys)) == 8
        measured = {t["number"]: t["measurement"] for t in trials if t["measurement"]}
        slowest = 1.5 * measured[0]["step_time_s"]
        feasible = {n: m for n, m in measured.items() if m["step_time_s"] <= slowest}
        expected = {n for n, m in feasible.items() if not any(beats(o, m) for o in feasible.values())}
        answer = client.get("/v1/studies/small/frontier").json()
        assert {point["trial"] for point in answer["frontier"]} == expected
        recommended = client.get("/v1/studies/small/recommendation", params={"policy": "least_energy"}).json()
        assert recommended["point"]["measurement"]["source"] == "simulated"
        pid = dispatcher_of(server)
        assert server.stop() == 0
        assert dispatcher_of(server) is None
        assert pid is not None
        assert not Path(f"/proc/{pid}").exists()


def test_a_dispatcher_does_not_outlive_a_server_that_was_killed(tmp_path: Path) -> None:
    with Server(f"sqlite:///{tmp_path / 'paretune.db'}", dispatcher=True) as server:
        eventually(lambda: dispatcher_of(server) is not None)
        time.sleep(5)
        pid = dispatcher_of(server)
        assert pid is not None
        server.process.kill()
        server.process.wait()
        eventually(lambda: dispatcher_of(server) is None, within_s=30)
