"""The API process of ``paretune serve`` at rest: peak resident memory and import time, against a bare FastAPI."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

RUNS = 5


def main() -> None:
    """Print both figures."""
    ours = [_import_s("api.app, api.serving") for _ in range(RUNS)]
    bare = [_import_s("fastapi, uvicorn, sqlalchemy.orm") for _ in range(RUNS)]
    ratio = statistics.median(ours) / statistics.median(bare)
    print(f"import of the service: median {statistics.median(ours):.2f} s of {RUNS}")
    print(f"ratio to importing fastapi, uvicorn and sqlalchemy alone: {ratio:.2f}")
    print(f"peak resident memory of the idle API process: {_peak_mb():.0f} MB")


def _import_s(modules: str) -> float:
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def _peak_mb() -> float:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PARETUNE_DATABASE_URL": f"sqlite:///{folder}/paretune.db"}
        command = [sys.executable, "-m", "api.cli", "serve", "--port", "0", "--no-dispatcher"]
        server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            page = re.search(r"http://\S+", server.stderr.readline())
            assert page is not None
            time.sleep(3)
            urllib.request.urlopen(page[0] + "readyz").read()
            status = Path(f"/proc/{server.pid}/status").read_text()
        finally:
            server.terminate()
            server.wait()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    return int(peak[1]) / 1000


if __name__ == "__main__":
    main()
