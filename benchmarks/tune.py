"""``make tune`` from a warm install: the example study, on a fresh database."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples/llama2-7b-16xh100.yaml"


def main() -> None:
    """Print how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PARETUNE_DATABASE_URL": f"sqlite:///{folder}/paretune.db"}
        command = [sys.executable, "-m", "api.cli", "tune", str(EXAMPLE), "--picture", f"{folder}/frontier.png"]
        started_s = time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        print(f"paretune tune {EXAMPLE.name}: {time.perf_counter() - started_s:.1f} s")


if __name__ == "__main__":
    main()
