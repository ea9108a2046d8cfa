"""What is on the disk after a power loss."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Put a file's content on the disk, or the names in a folder: without them a new file is not found again."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
