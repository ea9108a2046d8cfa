"""The ground of POET: what an encoding allows is laid, what it does not is refused, and one is BipedalWalker-v3."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from paddock.envs.bipedal.ground import Course, Ground, generate_ground
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec

STEP = 14 / 30  # m, between two points
GRASS = 400 / 30 / 4  # m, height of the start pad
PLAIN: dict[str, Any] = {
    "roughness": 0.0,
    "pit_gap": None,
    "stump_height": None,
    "stump_width": [1, 2],
    "stump_float": [0, 1],
    "stair_height": None,
    "stair_width": [4, 5],
    "stair_steps": [1, 2],
    "cppn": None,
    "length": 200,
}
EVERYTHING: dict[str, Any] = {
    "roughness": 3.0,
    "pit_gap": [0.4, 3.2],
    "stump_height": [0.0, 2.0],
    "stair_height": [0.2, 1.0],
    "stair_steps": [1, 4],
}
HILL: dict[str, Any] = {
    "nodes": [{"id": 0, "bias": 0.0, "response": 1.0, "activation": "identity"}],
    "connections": [{"source": -1, "target": 0, "weight": 2.0, "enabled": True}],
}


def lay(seed: int, **encoding: Any) -> Ground:
    return generate_ground(Course(**(PLAIN | encoding)), np.random.default_rng(seed))


def laid(**encoding: Any) -> list[Ground]:
    return [lay(seed, **encoding) for seed in range(300)]


def sizes(ground: Ground) -> np.ndarray:
    """[K, 2], widths and heights of the boxes, in steps."""
    return (ground.boxes[:, 2] - ground.boxes[:, 0]) / STEP


def spec(**kwargs: Any) -> EnvSpec:
    id = "paddock.envs.bipedal:paddock/Terrain-v0"
    return EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)


def standing(env: gymnasium.Env, seed: int) -> Any:
    env.reset(seed=seed)
    inner: Any = env.unwrapped
    return inner


def carry(walker: Any, x: float, y: float) -> None:
    """Put the hull at (x, y) and the legs where they then belong."""
    bodies = [walker.hull, *walker.legs]
    right, up = x - walker.hull.position.x, y - walker.hull.position.y
    for body in bodies:
        body.position = (body.position.x + right, body.position.y + up)


# The ground


def test_flat_is_flat() -> None:
    ground = lay(3)
    np.testing.assert_array_equal(ground.y, np.full(200, GRASS))
    np.testing.assert_allclose(ground.x, np.arange(200) * STEP)
    assert ground.boxes.shape == (0, 4, 2)


def test_pits_are_as_wide_as_drawn_and_four_steps_deep() -> None:
    widths = []
    for ground in laid(pit_gap=[0.5, 2.3]):
        assert set(np.round((GRASS - ground.y) / STEP, 9)) == {0.0, 4.0}
        assert np.all(np.diff(ground.x) > 0)
        np.testing.assert_allclose(sizes(ground), np.tile([1, 4], (len(ground.boxes), 1)))
        left, right = ground.boxes[0::2], ground.boxes[1::2]
        widths += list((right[:, 0, 0] - left[:, 0, 0]) / STEP)
        for first, second in zip(left, right, strict=True):
            # The grass ends at the left of one wall and begins at the right of the other.
            end, begin = first[3, 0], second[2, 0]
            if begin <= ground.x[-1]:
                at = [np.flatnonzero(np.isclose(ground.x, x, rtol=0, atol=1e-9))[0] for x in (end, begin)]
                np.testing.assert_allclose(ground.y[at], GRASS)
                assert np.all(ground.y[at[0] + 1 : at[1]] < GRASS) and at[1] - at[0] >= 3
    assert 1.5 <= min(widths) < 1.52 and 3.28 < max(widths) < 3.3


def test_stumps_are_within_their_ranges() -> None:
    grounds = laid(stump_height=[0.4, 1.8], stump_width=[1, 4], stump_float=[0, 3])
    width, height = np.concatenate([sizes(ground) for ground in grounds]).T
    lift = np.concatenate([(ground.boxes[:, 0, 1] - GRASS) / STEP for ground in grounds])
    assert set(np.round(width, 9)) == {1, 2, 3} and set(np.round(lift, 9)) == {0, 1, 2}
    assert 0.4 <= height.min() < 0.43 and 1.77 < height.max() < 1.8
    assert all(np.all(ground.y == GRASS) for ground in grounds)


def test_stairs_are_within_their_ranges_and_the_ground_goes_along() -> None:
    rises, flights = [], set()
    for ground in laid(stair_height=[0.4, 1.0], stair_width=[2, 4], stair_steps=[1, 4]):
        width, height = sizes(ground).T
        assert set(np.round(width, 9)) <= {2, 3}
        rises += list(height)
        flights |= set(np.unique(np.round(height, 9), return_counts=True)[1])
        # Under each step, the ground is flush with its top where stairs go up and with its bottom otherwise.
        (left, bottom), (right, top) = ground.boxes[:, 0].T[..., None], ground.boxes[:, 2].T[..., None]
        off = np.minimum(abs(ground.y - bottom), abs(ground.y - top))  # [K, L]
        assert off[(left + 1e-9 < ground.x) & (ground.x < right - 1e-9)].max() < 1e-9
    assert 0.4 <= min(rises) < 0.43 and 0.97 < max(rises) < 1.0
    assert flights == {1, 2, 3}


def test_a_network_gives_the_heights_beyond_the_start_pad() -> None:
    # f(x) = 2 x, with x = (i - 100) / 100 * pi: from point 21 on, each is 2 pi / 100 higher than the one before.
    ground = lay(0, cppn=HILL, roughness=5.0)
    expected = GRASS + np.maximum(np.arange(200) - 21, 0) * 2 * np.pi / 100
    np.testing.assert_allclose(ground.y, expected)


# The environment


def test_roughness_one_is_bipedal_walker_bit_for_bit() -> None:
    ours, theirs = spec(roughness=1.0).make(), gymnasium.make("paddock.envs.bipedal:paddock/BipedalWalker-v3")
    ends = 0
    for seed in range(6):
        generator = np.random.default_rng(seed)
        np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        mine, other = ours.unwrapped, theirs.unwrapped
        assert mine.ground.y.tolist() == other.terrain_y and mine.ground.x.tolist() == other.terrain_x  # type: ignore
        assert mine.np_random.bit_generator.state == other.np_random.bit_generator.state  # clouds and push are drawn
        for t in range(200):
            action = generator.uniform(-1.5, 1.5, 4).astype(np.float32)
            if seed % 3 == 0:  # gentle, so that it stands for long
                action = np.array([0.5, -0.3, -0.5, 0.3], np.float32) * np.float32(np.sin(t / 10))
            got, expected = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(got[0], expected[0])
            assert got[1:] == expected[1:]
            if got[2]:
                ends += 1
                break
    assert ends >= 2


def test_the_same_seed_gives_the_same_ground_on_a_used_instance() -> None:
    used = spec(**EVERYTHING).make()
    for seed in range(5):
        lived, new = standing(used, seed), standing(spec(**EVERYTHING).make(), seed)
        np.testing.assert_array_equal(lived.ground.y, new.ground.y)
        np.testing.assert_array_equal(lived.ground.boxes, new.ground.boxes)
        action = np.array([0.3, -0.3, 0.5, 0.2], np.float32)
        for _ in range(30):
            np.testing.assert_array_equal(used.step(action)[0], new.step(action)[0])


def test_a_fixed_ground_stays_while_the_push_changes() -> None:
    env = spec(**EVERYTHING, ground=5).make()
    first, other = standing(env, 1).ground.y, standing(spec(**EVERYTHING, ground=6).make(), 1).ground.y
    np.testing.assert_array_equal(standing(env, 2).ground.y, first)
    assert not np.array_equal(first, other)
    # Free ground from the same seed is the same ground: it is drawn first.
    np.testing.assert_array_equal(standing(spec(**EVERYTHING).make(), 5).ground.y, first)
    assert not np.array_equal(env.reset(seed=1)[0], env.reset(seed=2)[0])
    np.testing.assert_array_equal(env.reset(seed=1)[0], env.reset(seed=1)[0])


def test_the_picture_follows_the_walker_out_of_the_first_one() -> None:
    network = {**HILL, "connections": [{**HILL["connections"][0], "weight": -2.0}]}
    env: Any = spec(cppn=network, length=300).make(render_mode="rgb_array")
    walker = standing(env, 0)
    first = env.render()
    assert first.shape == (400, 600, 3) and first.dtype == np.uint8
    carry(walker, 280 * STEP, float(walker.ground.y[280]) + 2)
    env.step(np.zeros(4, np.float32))
    picture = env.render()
    hull = np.argwhere(np.all(picture == walker.hull.color1, axis=2))
    assert len(hull) > 100 and hull[:, 0].min() > 40 and hull[:, 0].max() < 360
    assert np.any(np.all(picture == (102, 153, 76), axis=2)), "the earth is in the picture"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roughness", -0.1),
        ("roughness", "rough"),
        ("pit_gap", [0.8, 0.4]),
        ("stump_float", [0.0, 1.5]),
        ("stair_steps", [1.5, 2.5]),
        ("length", 59),
        ("cppn", {"nodes": []}),
        ("cppn", {**HILL, "nodes": [{**HILL["nodes"][0], "bias": float("nan")}]}),
        ("cppn", {**HILL, "connections": [{**HILL["connections"][0], "source": 5}]}),
    ],
    ids=str,
)
def test_a_bad_encoding_is_refused_in_one_line_that_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^env\.kwargs\.{key}") as caught:
        spec(**{key: value}).make()
    assert "\n" not in str(caught.value)
