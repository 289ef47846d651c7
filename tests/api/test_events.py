"""Live events, over a real server: a test client would read a stream only once it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from builders import measurement
from server import Server
from service import Service


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Service, Server]]:
    url = f"sqlite:///{tmp_path / 'paretune.db'}"
    service = Service(url)
    with Server(url) as server:
        yield service, server
    service.repository.close()


def read_events(response: httpx2.Response, count: int) -> list[tuple[str, str, dict[str, object]]]:
    """The next events of a stream: id, kind, data."""
    found, current = [], dict[str, str]()
    for line in response.iter_lines():
        if not line and "data" in current:
            found.append((current["id"], current["event"], json.loads(current["data"])))
            current = {}
            if len(found) == count:
                break
        elif ": " in line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            current[name] = value
    return found


def test_a_stream_tells_what_happens_while_it_is_open_and_can_be_continued(served: tuple[Service, Server]) -> None:
    service, server = served
    lease = service.started()
    last = service.repository.last_event_id()
    with httpx2.stream("GET", f"{server.url}/v1/studies/small/events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        time.sleep(1.0)
        service.finish(lease, measurement())
        events = read_events(stream, 3)
    assert [kind for _, kind, _ in events] == ["trial.queued", "trial.running", "trial.complete"]
    assert [int(id_) for id_, _, _ in events] == [last + 1, last + 2, last + 3]
    assert events[-1][2]["study_name"] == "small"
    headers = {"Last-Event-ID": events[1][0]}
    with httpx2.stream("GET", f"{server.url}/v1/studies/small/events", headers=headers, timeout=20) as stream:
        assert read_events(stream, 1) == events[2:]
    with httpx2.stream("GET", f"{server.url}/v1/events", params={"after": last}, timeout=20) as stream:
        assert read_events(stream, 3) == events


def test_open_streams_do_not_hold_up_the_end_of_the_server(served: tuple[Service, Server]) -> None:
    service, server = served
    service.submit()
    with httpx2.stream("GET", f"{server.url}/v1/events", timeout=20) as stream:
        lines = stream.iter_lines()
        next(lines)
        started_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started_s < 4
        assert not [line for line in lines if line.startswith("data")]


def test_the_service_never_imports_ray_optuna_or_torch(tmp_path: Path) -> None:
    code = (
        "import sys, api.app, api.serving, api.cli\n"
        "from api.database import open_repository\n"
        f"api.app.create_app(open_repository('sqlite:///{tmp_path / 'x.db'}'))\n"
        "print([name for name in ('ray', 'optuna', 'torch', 'matplotlib', 'scipy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
