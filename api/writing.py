"""Files that a user names, written whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import InvalidInput


@contextmanager
def writing(path: Path, field: str) -> Iterator[io.TextIOWrapper]:
    """Open a file to write text to, which takes the place of what stood there once all of it is written.

    A device or pipe is written to as it is.

    Args:
        path: The file.
        field: What to call it in errors.

    Raises:
        InvalidInput: It cannot be written.
    """
    target = path.resolve()
    special = target.exists() and not target.is_file()
    part = target if special else target.with_name(target.name + ".part")
    try:
        try:
            with part.open("w", encoding="utf-8", newline="") as stream:
                yield stream
            if not special:
                os.replace(part, target)
        except BaseException:
            if not special:
                part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput.of(field, str(path), f"must be a file that can be written ({error.strerror})") from None
