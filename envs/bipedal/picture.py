"""Rendering of a walker on its ground, as in Gymnasium, but with vertical scrolling and any length of course."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d.bipedal_walker import SCALE, TERRAIN_HEIGHT, TERRAIN_STEP, VIEWPORT_H, VIEWPORT_W
from numpy.typing import NDArray

from paddock.envs.bipedal.walker import HEIGHT, WIDTH, Walker

SKY, CLOUD, EARTH = (215, 215, 255), (255, 255, 255), (102, 153, 76)
LIGHT_GRASS, DARK_GRASS = (76, 255, 76), (76, 204, 76)
STONE, RIM, POLE, CLOTH, RAY = (255, 255, 255), (153, 153, 153), (0, 0, 0), (230, 51, 0), (255, 0, 0)
LOW, HIGH = 0.25 * HEIGHT, 0.6 * HEIGHT  # m above the lower edge, between which the view does not scroll vertically

Color = tuple[int, int, int]
Point = Sequence[float]  # x, y, m


def show(walker: Walker) -> NDArray[np.uint8] | None:
    """Render a walker.

    Args:
        walker: walker with the attributes of `Terrain`: course, ground, clouds, finish.

    Returns:
        [400, 600, 3]; None if the render mode is "human".
    """
    surface = _Scene(walker).draw()
    if walker.render_mode == "rgb_array":
        return np.transpose(pygame.surfarray.array3d(surface), (1, 0, 2))
    window: Any = walker
    if window.screen is None:
        pygame.display.init()
        window.screen = pygame.display.set_mode((VIEWPORT_W, VIEWPORT_H))
        window.clock = pygame.time.Clock()
    window.screen.blit(surface, (0, 0))
    pygame.event.pump()
    window.clock.tick(window.metadata["render_fps"])
    pygame.display.flip()
    return None


class _Scene:
    """One image; coordinates are in metres."""

    def __init__(self, walker: Any) -> None:
        self.walker = walker
        self.left = walker.scroll
        y = walker.hull.position.y
        self.bottom = y - min(max(y, LOW), HIGH)
        self.surface = pygame.Surface((VIEWPORT_W, VIEWPORT_H))

    def draw(self) -> pygame.Surface:
        walker, ground = self.walker, self.walker.ground
        self.surface.fill(SKY)
        self._clouds()
        self._grass()
        for corners in ground.boxes:
            self._polygon(corners.tolist(), STONE, RIM)
        walker.lidar_render = (walker.lidar_render + 1) % 100
        if walker.lidar_render < 2 * len(walker.lidar):
            ray = walker.lidar[walker.lidar_render % len(walker.lidar)]
            if hasattr(ray, "p1"):  # not before the first step
                self._line(ray.p1, ray.p2, RAY)
        for body in walker.drawlist:
            for fixture in body.fixtures:
                self._polygon([body.transform * corner for corner in fixture.shape.vertices], body.color1, body.color2)
        self._flag(3 * TERRAIN_STEP, TERRAIN_HEIGHT)
        self._flag(walker.finish, float(np.interp(walker.finish, ground.x, ground.y)))
        return self.surface

    def _clouds(self) -> None:
        # Parallax: clouds move half as fast as the ground.
        for draws in self.walker.clouds.tolist():
            x = draws[0] * self.walker.course.length * TERRAIN_STEP + self.left / 2
            y = 0.75 * HEIGHT + self.bottom
            corners = [
                (
                    x + TERRAIN_STEP * (15 * math.sin(3.14 * 2 * a / 5) + 5 * draws[1 + 2 * a]),
                    y + TERRAIN_STEP * (5 * math.cos(3.14 * 2 * a / 5) + 5 * draws[2 + 2 * a]),
                )
                for a in range(5)
            ]
            self._polygon(corners, CLOUD, CLOUD)

    def _grass(self) -> None:
        points = list(zip(self.walker.ground.x.tolist(), self.walker.ground.y.tolist(), strict=True))
        for i, (first, second) in enumerate(itertools.pairwise(points)):
            if second[0] >= self.left and first[0] <= self.left + WIDTH:
                below = min(self.bottom, first[1], second[1]) - 1
                self._polygon([first, second, (second[0], below), (first[0], below)], EARTH, EARTH)
                self._line(first, second, LIGHT_GRASS if i % 2 == 0 else DARK_GRASS)

    def _flag(self, x: float, y: float) -> None:
        top = y + 50 / SCALE
        self._line((x, y), (x, top), POLE)
        self._polygon([(x, top), (x, top - 10 / SCALE), (x + 25 / SCALE, top - 5 / SCALE)], CLOTH, POLE)

    def _line(self, first: Point, second: Point, color: Color) -> None:
        pygame.draw.aaline(self.surface, color, self._pixel(first), self._pixel(second))

    def _polygon(self, corners: Sequence[Point], inside: Color, rim: Color) -> None:
        pixels = [self._pixel(corner) for corner in corners]
        pygame.draw.polygon(self.surface, inside, pixels)
        pygame.draw.aalines(self.surface, rim, True, pixels)

    def _pixel(self, point: Point) -> tuple[float, float]:
        return (point[0] - self.left) * SCALE, VIEWPORT_H - (point[1] - self.bottom) * SCALE
