"""A stream of rows on the disk: files that are only appended to, mapped side by side as one ring of rows.

A checkpoint points to the files and says how far they went. Rows behind that are written once more by whoever goes on
from there, so that a process which was killed at any moment leaves nothing to mend. Rows are written by `pwrite`, and
read where they are mapped: a full disk is then an error, and not the end of the process. A file that has another name,
by a hard link of whoever goes on from the same rows, is copied before it is written to.
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

MOST_BYTES = 2**26  # of a segment
LEAST_ROWS = 256  # unless they are more bytes
HEADER = mmap.PAGESIZE  # bytes of a file before its rows

_ADDRESS = ctypes.c_void_p


class Segments:
    """Rows 0, 1, 2, ... of a stream, the oldest of which are dropped by whole files."""

    def __init__(self, folder: Path | None, name: str, dtype: np.dtype[Any], most: int) -> None:
        """Touch no file.

        Args:
            folder: where files are, made with the first of them; None: nothing can be written or read.
            name: files begin with it.
            dtype: of a row, a multiple of 16 bytes.
            most: rows that may be there between the first that is kept and the last that is written.
        """
        assert dtype.itemsize % 16 == 0, dtype
        self.dtype = dtype
        rows = HEADER // math.gcd(HEADER, dtype.itemsize)  # so that segments begin at pages
        while 2 * rows <= min(max(most // SHARE, LEAST_ROWS), MOST_BYTES // dtype.itemsize):
            rows *= 2
        self.segment_rows = rows
        slots = 1
        while slots * self.segment_rows < most + 2 * self.segment_rows:
            slots *= 2
        self.ring_rows = slots * self.segment_rows
        self.committed = 0  # rows that will not be written again
        self.written = 0  # these, and those behind them that will be
        self.begin = 0  # of these, those of files that were dropped
        self._sums: dict[int, int] = {}  # CRC-32 of the committed rows of each file that has some
        self._folder, self._name, self._slots = folder, name, slots
        self._header = _header(dtype, self.segment_rows)
        self._files: dict[int, int] = {}  # descriptors of files that may be written to
        self._mapped: set[int] = set()
        self._region: mmap.mmap | None = None
        self._ring: NDArray[Any] | None = None
        self._unsaved = self._created = False  # since `save` was called last: rows were written, files were made

    @property
    def ring(self) -> NDArray[Any]:
        """[ring_rows], to be read: row j lies at j modulo ring_rows, which is a power of two."""
        if self._ring is None:
            self._open()
        assert self._ring is not None
        return self._ring

    @property
    def names(self) -> list[str]:
        """The files that hold rows which are kept, or will be the next."""
        return [self._file(number) for number, _, _ in self._pieces(self.begin, self.written)]

    @property
    def extent(self) -> tuple[int, int]:
        """The first row that is there, and the one behind the last."""
        return self.begin, self.written

    def put(self, rows: NDArray[Any], committed: int) -> None:
        """Write rows behind those that are committed, and settle the first of them.

        Raises:
            ReplayRefused: the disk refuses a file.
            ReplayError: one that was written before is not as it was.
        """
        _ = self.ring
        content, at, size = rows.view(np.uint8).data, self.committed, self.dtype.itemsize
        end, committed_end = at + len(rows), at + committed
        for number, start, stop in self._pieces(at, end):
            if number not in self._mapped:
                self._create(number)
            piece = content[(start - at) * size : (stop - at) * size]
            self._write(number, piece, HEADER + (start - number * self.segment_rows) * size)
        for number, start, stop in self._pieces(at, committed_end):
            self._sums[number] = zlib.crc32(
                content[(start - at) * size : (stop - at) * size], self._sums.get(number, 0)
            )
        self.committed, self.written, self._unsaved = committed_end, end, True

    def drop(self, first: int) -> None:
        """Drop the files whose rows all lie before `first`."""
        while (self.begin // self.segment_rows + 1) * self.segment_rows <= min(first, self.committed):
            number = self.begin // self.segment_rows
            self.begin = (number + 1) * self.segment_rows
            self._sums.pop(number, None)
            self._unmap(number)

    def map_rows(self, begin: int, written: int) -> None:
        """Map rows begin .. written - 1 that another process put, and no others, to be read as they are.

        Raises:
            ReplayError: a file is missing.
        """
        _ = self.ring
        wanted = {number for number, _, _ in self._pieces(begin, written)}
        for number in self._mapped - wanted:
            self._unmap(number)
        for number in wanted - self._mapped:
            try:
                self._files[number] = os.open(self._path(number), os.O_RDONLY)
            except OSError as error:
                raise ReplayError(f"replay {self._path(number)} cannot be opened ({error.strerror})") from error
            self._map(number)
            self._close(number)

    def save(self) -> None:
        """Put on the disk what was written since this was called last.

        Raises:
            ReplayRefused: it refuses.
        """
        if not self._unsaved:
            return
        for number in list(self._files):
            with self._storing(number):
                os.fdatasync(self._files[number])
            if (number + 1) * self.segment_rows <= self.committed:
                self._close(number)
        if self._created:
            assert self._folder is not None
            sync(self._folder)
        self._unsaved = self._created = False

    def state_dict(self) -> dict[str, Any]:
        """Which files there are, and how far they go."""
        sums = np.array([self._sums[k] for k in sorted(self._sums)], np.uint32)
        return {"settled": self.committed, "written": self.written, "begin": self.begin, "sums": sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; files are looked at when they are used."""
        self.close()
        self.committed, self.written, self.begin = (int(state[name]) for name in ("settled", "written", "begin"))
        first = self.begin // self.segment_rows
        self._sums = {first + k: int(one) for k, one in enumerate(state["sums"])}

    def close(self) -> None:
        """Close all files; they are opened again when they are used."""
        for number in list(self._files):
            self._close(number)
        self._mapped.clear()
        self._region = self._ring = None

    def __del__(self) -> None:
        for descriptor in self._files.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open(self) -> None:
        """Map the files that there are, and compare them with what is known of them."""
        if self._folder is None:
            raise ReplayError("this algorithm was made to be asked for its policy; one that learns is given a folder")
        size = self.ring_rows * self.dtype.itemsize
        # What is only read takes no memory.
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        ring = np.frombuffer(region, self.dtype)
        self._region, self._ring = region, ring
        try:
            for number in sorted(self._sums):
                self._enter(number)
        except BaseException:
            self.close()
            raise

    def _enter(self, number: int) -> None:
        """Map a file that was written before, and compare it with what is known of it.

        Raises:
            ReplayError: it is missing, or not as it was.
        """
        path = self._path(number)
        remedy = "put it back, or start again in another folder"
        start = number * self.segment_rows
        if start + self.segment_rows > self.committed:
            self._make_own(number)
        try:
            self._files[number] = descriptor = os.open(path, os.O_RDWR)
            header, length = os.pread(descriptor, HEADER, 0), os.fstat(descriptor).st_size
        except OSError as error:
            raise ReplayError(f"replay {path} cannot be opened ({error.strerror}); {remedy}") from error
        wanted = HEADER + self.segment_rows * self.dtype.itemsize
        if length != wanted:
            raise ReplayError(f"replay {path} is damaged: it has {length:,} bytes of {wanted:,}; {remedy}")
        if header != self._header:
            raise ReplayError(f"replay {path} is damaged: its header is not that of these rows; {remedy}")
        self._map(number)
        count, at = min(self.committed - start, self.segment_rows), start % self.ring_rows
        if zlib.crc32(self.ring[at : at + count].view(np.uint8).data) != self._sums[number]:
            raise ReplayError(f"replay {path} is damaged: its checksum is another; {remedy}")
        if count == self.segment_rows:
            self._close(number)

    def _make_own(self, number: int) -> None:
        """Copy a file that has another name, as rows will be written to it."""
        path = self._path(number)
        if not path.exists() or path.stat().st_nlink == 1:
            return
        with self._storing(number):
            copy = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            shutil.copyfile(path, copy)
            sync(copy)  # or a power loss could leave the name, that checkpoints know, on an empty file
            os.replace(copy, path)
        self._created = True

    def _create(self, number: int) -> None:
        """Make a file anew: one that is there is a killed process's, or mapped by somebody."""
        path = self._path(number)
        with self._storing(number):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._files[number] = descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.truncate(descriptor, HEADER + self.segment_rows * self.dtype.itemsize)
        self._write(number, memoryview(self._header), 0)
        self._map(number)
        self._created = True

    def _write(self, number: int, content: memoryview, offset: int) -> None:
        with self._storing(number):
            while content:
                count = os.pwrite(self._files[number], content, offset)
                content, offset = content[count:], offset + count

    def _map(self, number: int) -> None:
        with self._storing(number):
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

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The files that rows start .. end - 1 lie in: number, first row and the one behind the last."""
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
    def _storing(self, number: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            remedy = "make room, or mend that, and the same command with run.dir= goes on"
            raise ReplayRefused(f"replay {self._path(number)} cannot be written ({why}); {remedy}") from error


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """What a .npy file of so many rows begins with, up to the end of its first page."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": (rows,)})
    header = buffer.getvalue()
    magic = np.lib.format.MAGIC_LEN
    assert len(header) <= HEADER, len(header)
    text = header[magic + 2 :].rstrip()
    length = HEADER - magic - 2
    return header[:magic] + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


_FIXED = 0x10  # of Linux and of others


def _map(address: int, size: int, descriptor: int | None) -> None:
    """Let memory at an address be a file's rows, to be read; None: be nothing again."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = _ADDRESS
    library.mmap.argtypes = (_ADDRESS, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if descriptor is None else mmap.MAP_SHARED
    source, offset = (-1, 0) if descriptor is None else (descriptor, HEADER)
    if library.mmap(address, size, mmap.PROT_READ, kind | _FIXED, source, offset) != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
