"""Writing a file so that its name holds either the old bytes or the new ones, never a part."""
from __future__ import annotations

import os
import secrets


def write_atomically(path: str | os.PathLike, data: bytes) -> None:
    """Write `data` to `path` through a temporary file in the same folder, flushed to disk and then renamed.

    A symbolic link is followed. On any error the temporary file is removed and `path` stays as it was; an OSError
    names `path`, not the temporary file.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:  # open, unlike tempfile, gives ordinary permissions
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    _flush_folder(folder)


def _flush_folder(folder: str) -> None:
    """Make the renaming itself durable, where folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
