"""BipedalWalker on a ground given by an encoding: POET's environment."""

import itertools
from typing import Any

import numpy as np
from gymnasium.envs.box2d.bipedal_walker import TERRAIN_GRASS, TERRAIN_STEP
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from paddock.envs.bipedal.ground import Course, Ground, generate_ground, is_whole
from paddock.envs.bipedal.walker import Walker
from paddock.envs.errors import require

SCENERY = 11  # random numbers per cloud


class Terrain(Walker):
    """`Walker` on a configurable ground, with the same rewards and observations."""

    def __init__(self, render_mode: str | None = None, *, ground: int | None = None, **encoding: Any) -> None:
        """Build the environment.

        Args:
            render_mode: "human", "rgb_array" or None.
            ground: seed of a ground shared by all episodes, >= 0; the seed of `reset` then only determines the initial
                push. None: the seed of `reset` also determines the ground.
            **encoding: fields of `paddock.envs.bipedal.ground.Course`; by default the ground is flat.

        Raises:
            ConfigError: a value is out of range, of the wrong type or shape.
        """
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
        """Return an image, [400, 600, 3], for "rgb_array"."""
        if self.render_mode is None:
            return super().render()
        # Imported here, as only rendering needs pygame.
        from paddock.envs.bipedal import picture

        return picture.show(self)

    def _draw(self, generator: np.random.Generator) -> tuple[Ground, NDArray[np.float64]]:
        """Generate the ground, and random numbers [C, 11] in [0, 1) for the clouds."""
        return generate_ground(self.course, generator), generator.random((self.course.length // 20, SCENERY))

    def _generate_terrain(self, hardcore: bool) -> None:
        """Create the ground as one body; bit-identical to Gymnasium's 200 bodies, at a fifth of the cost."""
        self.ground, self.clouds = self._fixed or self._draw(self.np_random)
        create = self.world.CreateStaticBody().CreateFixture
        box, edge = self.fd_polygon, self.fd_edge
        for corners in self.ground.boxes:
            size, middle = (corners[2] - corners[0]) / 2, (corners[2] + corners[0]) / 2
            # Unlike vertices, this has no minimum height.
            box.shape.SetAsBox(*size.tolist(), middle.tolist(), 0.0)
            create(box)
        points = zip(self.ground.x.tolist(), self.ground.y.tolist(), strict=True)
        shape = edge.shape
        for first, second in itertools.pairwise(points):
            shape.vertex1, shape.vertex2 = first, second
            create(edge)

    def _generate_clouds(self) -> None:
        """Do nothing: clouds are generated with the ground."""
