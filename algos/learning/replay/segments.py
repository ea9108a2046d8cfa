"""Append-only stream of rows in files, memory-mapped as one ring buffer.

A checkpoint stores the files' names and the number of committed rows. A resumed run overwrites later rows, so no
repair is needed after a crash. Rows are written with `pwrite` and read through the memory map, so a full disk raises an
error instead of killing the process. Files with several hard links are copied on write.
"""

import contextlib
import ctypes
import io
import math
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.disk import sync
from paddock.algos.learning.replay.disk_space import SHARE, ReplayError, ReplayRefused

MAX_BYTES = 2**26  # maximum size of a segment
MIN_ROWS = 256  # minimum rows of a segment, if they fit in MAX_BYTES
HEADER = mmap.PAGESIZE  # header size, bytes

_ADDRESS = ctypes.c_void_p


class Segments:
    """Stream of numbered rows in files of equal size; the oldest files are dropped."""

    def __init__(self, folder: Path | None, name: str, dtype: np.dtype[Any], max_rows: int) -> None:
        """Initialize without touching any file.

        The folder is created on the first write; without one, rows cannot be written or read. `name` is the prefix of
        file names, the size of `dtype` a multiple of 16 bytes, and `max_rows` the maximum number of rows kept.
        """
        assert dtype.itemsize % 16 == 0, dtype
        self.dtype = dtype
        rows = HEADER // math.gcd(HEADER, dtype.itemsize)  # aligns segments to pages
        while 2 * rows <= min(max(max_rows // SHARE, MIN_ROWS), MAX_BYTES // dtype.itemsize):
            rows *= 2
        self.segment_rows = rows
        slots = 1
        while slots * self.segment_rows < max_rows + 2 * self.segment_rows:
            slots *= 2
        self.ring_rows = slots * self.segment_rows
        self.committed = 0  # number of final rows
        self.written = 0  # committed rows plus later rows, which will be overwritten
        self.begin = 0  # number of rows in dropped files
        self._sums: dict[int, int] = {}  # CRC-32 of each file's committed rows
        self._folder, self._name, self._slots = folder, name, slots
        self._header = _header(dtype, self.segment_rows)
        self._files: dict[int, int] = {}  # file descriptors of writable files
        self._mapped: set[int] = set()
        self._region: mmap.mmap | None = None
        self._ring: NDArray[Any] | None = None
        self._unsaved = self._created = False  # rows written, files created since the last `save`

    @property
    def ring(self) -> NDArray[Any]:
        """Read-only ring buffer [ring_rows]; row j is at index j % ring_rows."""
        if self._ring is None:
            self._open()
        assert self._ring is not None
        return self._ring

    @property
    def names(self) -> list[str]:
        """Names of the files in use."""
        return [self._file(number) for number, _, _ in self._split_by_file(self.begin, self.written)]

    def put(self, rows: NDArray[Any], committed: int) -> None:
        """Write rows after the last committed row, and commit the first `committed` of them.

        Raise ReplayRefused if a file cannot be written, and ReplayError if an existing one is missing or damaged.
        """
        _ = self.ring
        content, first, size = rows.view(np.uint8).data, self.committed, self.dtype.itemsize
        end, committed_end = first + len(rows), first + committed
        for number, start, stop in self._split_by_file(first, end):
            if number not in self._mapped:
                self._create(number)
            piece = content[(start - first) * size : (stop - first) * size]
            self._write(number, piece, HEADER + (start - number * self.segment_rows) * size)
        for number, start, stop in self._split_by_file(first, committed_end):
            self._sums[number] = zlib.crc32(
                content[(start - first) * size : (stop - first) * size], self._sums.get(number, 0)
            )
        self.committed, self.written, self._unsaved = committed_end, end, True

    def drop(self, first: int) -> None:
        """Drop files that hold only rows before `first`."""
        while (self.begin // self.segment_rows + 1) * self.segment_rows <= min(first, self.committed):
            number = self.begin // self.segment_rows
            self.begin = (number + 1) * self.segment_rows
            self._sums.pop(number, None)
            self._unmap(number)

    def save(self) -> None:
        """Flush rows written since the last call to disk; raise ReplayRefused if a file cannot be written."""
        if not self._unsaved:
            return
        for number in list(self._files):
            with self._convert_errors(number):
                os.fdatasync(self._files[number])
            if (number + 1) * self.segment_rows <= self.committed:
                self._close(number)
        if self._created:
            assert self._folder is not None
            sync(self._folder)
        self._unsaved = self._created = False

    def state_dict(self) -> dict[str, Any]:
        """Return the range of rows and the files' checksums."""
        sums = np.array([self._sums[k] for k in sorted(self._sums)], np.uint32)
        return {"settled": self.committed, "written": self.written, "begin": self.begin, "sums": sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; files are verified on first use."""
        self.close()
        self.committed, self.written, self.begin = (int(state[name]) for name in ("settled", "written", "begin"))
        first = self.begin // self.segment_rows
        self._sums = {first + k: int(checksum) for k, checksum in enumerate(state["sums"])}

    def close(self) -> None:
        """Close all files; they are reopened on next use."""
        for number in list(self._files):
            self._close(number)
        self._mapped.clear()
        self._region = self._ring = None

    def __del__(self) -> None:
        for descriptor in self._files.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open(self) -> None:
        if self._folder is None:
            raise ReplayError("the replay has no folder, so this algorithm can only act; pass a folder to train")
        size = self.ring_rows * self.dtype.itemsize
        # Anonymous pages use no memory while they are only read.
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        ring = np.frombuffer(region, self.dtype)
        self._region, self._ring = region, ring
        try:
            for number in sorted(self._sums):
                self._map_existing(number)
        except BaseException:
            self.close()
            raise

    def _map_existing(self, number: int) -> None:
        """Map an existing file; raise ReplayError unless its size, header and checksum are correct."""
        path = self._path(number)
        remedy = "restore the file, or train again in another folder"
        start = number * self.segment_rows
        if start + self.segment_rows > self.committed:
            self._copy_if_linked(number)
        try:
            self._files[number] = descriptor = os.open(path, os.O_RDWR)
            header, length = os.pread(descriptor, HEADER, 0), os.fstat(descriptor).st_size
        except OSError as error:
            raise ReplayError(f"replay {path} cannot be opened ({error.strerror}); {remedy}") from error
        expected = HEADER + self.segment_rows * self.dtype.itemsize
        if length != expected:
            raise ReplayError(f"replay {path} is damaged: it has {length:,} of {expected:,} bytes; {remedy}")
        if header != self._header:
            raise ReplayError(f"replay {path} is damaged: its header does not match; {remedy}")
        self._map(number)
        count, at = min(self.committed - start, self.segment_rows), start % self.ring_rows
        if zlib.crc32(self.ring[at : at + count].view(np.uint8).data) != self._sums[number]:
            raise ReplayError(f"replay {path} is damaged: its checksum does not match; {remedy}")
        if count == self.segment_rows:
            self._close(number)

    def _copy_if_linked(self, number: int) -> None:
        """Replace a file that has several hard links with a copy, so that writing does not change the others."""
        path = self._path(number)
        if not path.exists() or path.stat().st_nlink == 1:
            return
        with self._convert_errors(number):
            copy = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            shutil.copyfile(path, copy)
            sync(copy)  # otherwise a power loss could leave an empty file
            os.replace(copy, path)
        self._created = True

    def _create(self, number: int) -> None:
        """Create a file, replacing any left by a killed process; it is unlinked because it may still be mapped."""
        path = self._path(number)
        with self._convert_errors(number):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._files[number] = descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.truncate(descriptor, HEADER + self.segment_rows * self.dtype.itemsize)
        self._write(number, memoryview(self._header), 0)
        self._map(number)
        self._created = True

    def _write(self, number: int, content: memoryview, offset: int) -> None:
        with self._convert_errors(number):
            while content:
                count = os.pwrite(self._files[number], content, offset)
                content, offset = content[count:], offset + count

    def _map(self, number: int) -> None:
        with self._convert_errors(number):
            _map(self._address(number), self.segment_rows * self.dtype.itemsize, self._files[number])
        self._mapped.add(number)

    def _unmap(self, number: int) -> None:
        if number in self._mapped:
            self._mapped.discard(number)
            self._close(number)
            _map(self._address(number), self.segment_rows * self.dtype.itemsize, None)

    def _address(self, number: int) -> int:
        return int(self.ring.ctypes.data) + number % self._slots * self.segment_rows * self.dtype.itemsize

    def _close(self, number: int) -> None:
        if number in self._files:
            os.close(self._files.pop(number))

    def _split_by_file(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        while start < end:
            number = start // self.segment_rows
            stop = min(end, (number + 1) * self.segment_rows)
            yield number, start, stop
            start = stop

    def _file(self, number: int) -> str:
        return f"{self._name}-{number:06d}.npy"

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / self._file(number)

    @contextlib.contextmanager
    def _convert_errors(self, number: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            remedy = "free disk space or fix the error, then resume with run.dir="
            raise ReplayRefused(f"replay {self._path(number)} cannot be written ({reason}); {remedy}") from error


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """Return the .npy header of a file with `rows` rows, padded to one page."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": (rows,)})
    header = buffer.getvalue()
    magic = np.lib.format.MAGIC_LEN
    assert len(header) <= HEADER, len(header)
    text = header[magic + 2 :].rstrip()
    length = HEADER - magic - 2
    return header[:magic] + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


_MAP_FIXED = 0x10  # missing in the mmap module


def _map(address: int, size: int, descriptor: int | None) -> None:
    """Map a file's rows read-only at an address; without a descriptor, unmap them."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = _ADDRESS
    library.mmap.argtypes = (_ADDRESS, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if descriptor is None else mmap.MAP_SHARED
    source, offset = (-1, 0) if descriptor is None else (descriptor, HEADER)
    if library.mmap(address, size, mmap.PROT_READ, kind | _MAP_FIXED, source, offset) != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
