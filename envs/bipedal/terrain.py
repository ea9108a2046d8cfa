"""The walker on the ground that an encoding describes: the environment that POET varies."""

import itertools
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import TERRAIN_GRASS, TERRAIN_STEP
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from paddock.envs.bipedal.ground import Course, Ground, is_whole, lay_ground
from paddock.envs.bipedal.walker import Walker
from paddock.envs.errors import require

SCENERY = 11  # draws for each cloud


class Terrain(Walker):
    """`Walker` with a ground of its own; reward and observations are the same.

    Args:
        encoding: see `paddock.envs.bipedal.ground.Course`; without any, the ground is flat.
        ground: seed of the ground, >= 0: the same in every episode, and reset's seed decides the push at the start
            alone. None: reset's seed decides the ground too.

    Raises:
        ConfigError: a value is out of range, of the wrong type or shape.
    """

    def __init__(self, render_mode: str | None = None, *, ground: int | None = None, **encoding: Any) -> None:
        self.course = Course(**encoding)
        require(
            ground is None or (is_whole(ground) and ground >= 0),
            f"env.kwargs.ground={ground!r} must be a seed >= 0, or null for a new ground in every episode",
        )
        super().__init__(render_mode)
        EzPickle.__init__(self, render_mode, ground=ground, **encoding)
        self.finish = (self.course.length - TERRAIN_GRASS) * TERRAIN_STEP
        self._fixed = None if ground is None else self._draw(np.random.default_rng(ground))

    def render(self) -> NDArray[np.uint8] | None:
        """The picture, [400, 600, 3] for "rgb_array"; it follows the walker up and down too."""
        if self.render_mode is None:
            return super().render()
        # Only those who look need pygame.
        from paddock.envs.bipedal import picture

        return picture.show(self)

    def _draw(self, generator: np.random.Generator) -> tuple[Ground, NDArray[np.float64]]:
        """The ground, and what the clouds are made of: [C, 11] in [0, 1)."""
        return lay_ground(self.course, generator), generator.random((self.course.length // 20, SCENERY))

    def _generate_terrain(self, hardcore: bool) -> None:
        """Called by Gymnasium's reset: one body, a fifth of the work of its 200, with the same numbers."""
        self.ground, self.clouds = self._fixed or self._draw(self.np_random)
        create = self.world.CreateStaticBody().CreateFixture
        box, edge = self.fd_polygon, self.fd_edge
        for corners in self.ground.boxes:
            size, middle = (corners[2] - corners[0]) / 2, (corners[2] + corners[0]) / 2
            # Unlike vertices, this may be as low as it likes.
            box.shape.SetAsBox(*size.tolist(), middle.tolist(), 0.0)
            create(box)
        points = zip(self.ground.x.tolist(), self.ground.y.tolist(), strict=True)
        shape = edge.shape
        for first, second in itertools.pairwise(points):
            shape.vertex1, shape.vertex2 = first, second
            create(edge)

    def _generate_clouds(self) -> None:
        """Called by Gymnasium's reset; they were drawn with the ground."""
