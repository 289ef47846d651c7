"""What a sampler needs to be installed; told without importing any of it."""

from __future__ import annotations

import importlib.util

from tuner.errors import InvalidInput


def require_gp() -> None:
    """Refuse the ``gp`` sampler where its packages are missing.

    Raises:
        InvalidInput: torch or scipy is not installed.
    """
    missing = [name for name in ("torch", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput.of(
            "sampler.kind",
            "gp",
            f"needs {' and '.join(missing)}: install paretune[torch], or use tpe, nsga2, random, grid",
        )
