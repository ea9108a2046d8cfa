"""Frames to an MP4 that browsers play, in memory: H.264 where the installed PyAV has it, else MPEG-4."""

import io
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..runs.late import av

CODECS = ("libx264", "libopenh264", "mpeg4")  # the first one there is; all browsers play all but the last


class Mp4:
    """Encodes frames as they come."""

    def __init__(self, fps: float) -> None:
        self.codec = next(name for name in CODECS if name in av.codecs_available)
        self._empty = True
        self._file = io.BytesIO()
        self._container = av.open(self._file, "w", format="mp4")
        stream = self._container.add_stream(self.codec, rate=Fraction(fps).limit_denominator(1000))
        assert isinstance(stream, av.VideoStream)
        self._stream = stream
        self._stream.pix_fmt = "yuv420p"

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append one frame [H, W, 3] in RGB; all are of one size, of which yuv420p needs the sides even."""
        height, width, _ = frame.shape
        padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._empty:
            self._stream.height, self._stream.width = padded.shape[:2]
            self._empty = False
        self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))

    def finish(self) -> bytes:
        """The whole file; no frame can follow."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._file.getvalue()
