"""Files that a user names, written whole or not at all."""

from __future__ import annotations

import io
import os
import secrets
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
    # Of a pipe the true path is no name that can be opened.
    special = path.exists() and not path.is_file()
    target = path if special else path.resolve()
    part = path if special else target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with part.open("w" if special else "x", encoding="utf-8", newline="") as stream:
                yield stream
            if not special:
                os.replace(part, target)
        except BaseException:
            if not special:
                part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput.of(field, str(path), f"must be a file that can be written ({error.strerror})") from None
