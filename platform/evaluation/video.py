"""MP4 videos of episodes, encoded in memory: H.264 if the installed PyAV has it, otherwise MPEG-4."""

import io
import itertools
import os
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.algos.common.threads import one_thread
from paddock.algos.learning.policy_episodes import EvaluationSpec, alone
from paddock.algos.multiagent.episodes import play_episodes
from paddock.envs.errors import ConfigError, require
from paddock.envs.vector.serial import SerialVectorEnv

from ..runs.lazy_imports import av
from ..tracking.console import LiveLine

CODECS = ("libx264", "libopenh264", "mpeg4")  # in order of preference; browsers may not play the last


class Mp4:
    """Encoder of RGB frames to MP4, one frame at a time."""

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
        """Append one RGB frame [H, W, 3]; all have the same size, padded to even sides for yuv420p."""
        height, width, _ = frame.shape
        padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._empty:
            self._stream.height, self._stream.width = padded.shape[:2]
            self._empty = False
        self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))

    def finish(self) -> bytes:
        """Return the complete file; no more frames can be added."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._file.getvalue()


@dataclass(frozen=True)
class Film:
    """Recorded episode."""

    return_: float
    frames: int  # one per step
    codec: str
    content: bytes = field(repr=False)  # the MP4 file


def draw_without_screen() -> None:
    """Select SDL's dummy drivers on machines without a display, so that environments can render to arrays."""
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")) and sys.platform.startswith("linux"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


def film_episode(evaluation: EvaluationSpec, seed: int, path: Path) -> Film:
    """Record the episode of a seed, in a separate environment that renders."""
    draw_without_screen()
    spec, remedy = evaluation.env, "remove video="
    with closing(spec.make()) as env:
        modes, fps = env.metadata.get("render_modes") or ["none"], env.metadata.get("render_fps") or 30
    # Checked first, as Gymnasium only warns about an unsupported render mode.
    known = f"{spec.id} cannot render to an array (render_modes: {', '.join(modes)}); {remedy}"
    require("rgb_array" in modes, f"video={path}: {known}")
    drawing = replace(spec, kwargs={**dict(spec.kwargs), "render_mode": "rgb_array"})
    progress = LiveLine(sys.stderr)
    with (
        one_thread(),
        closing(SerialVectorEnv(drawing, 1, AutoresetMode.DISABLED, packed=True)) as venv,
        closing(progress),
    ):
        encoder, frames = Mp4(fps), itertools.count(1)

        def watch() -> None:
            progress.show(f"recording: frame {next(frames):,}")
            try:
                frame: Any = venv.envs[0].render()
            except Exception as error:
                # A missing display, driver or package may raise anything.
                problem = f"{spec.id} cannot render ({type(error).__name__}: {error}); {remedy}"
                raise ConfigError(f"video={path}: {problem}") from error
            valid = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,)
            require(valid, f"video={path}: {spec.id} does not render [H, W, 3] arrays of uint8; {remedy}")
            encoder.add(frame)

        played = play_episodes(
            venv, drawing, alone(evaluation, [seed], 1), [seed], cap=evaluation.max_steps, watch=watch
        )
    return Film(float(played.returns[0]), int(played.lengths[0]), encoder.codec, encoder.finish())
