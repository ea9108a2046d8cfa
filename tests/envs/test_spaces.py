"""The laws of rows: every element of every space is read as it was written, and equal elements have equal bytes."""

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.spaces.codecs import SpaceMismatch
from paddock.envs.spaces.layout import Layout

DTYPES = ("u1", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "?")
SHAPES = ((), (1,), (3,), (2, 3), (5, 6, 1))


class Mission(Space[str]):
    """A text of a class of its own, as MiniGrid's."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "go to " + "aeiou"[self.np_random.integers(5)] * int(self.np_random.integers(4))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


def box(rng: np.random.Generator) -> spaces.Box:
    dtype, shape = np.dtype(DTYPES[rng.integers(len(DTYPES))]), SHAPES[rng.integers(len(SHAPES))]
    if dtype.kind == "f":
        return spaces.Box(-1, 1, shape, dtype.type)
    return spaces.Box(0, 1 if dtype.kind == "b" else 100, shape, dtype.type)


def random_space(rng: np.random.Generator, depth: int, path: str, bounds: dict[str, Any]) -> Space:
    """Draw a space of at most so many levels, and note the bounds it needs."""
    inner = lambda *keys: random_space(rng, depth - 1, ".".join(filter(None, [path, *map(str, keys)])), bounds)  # noqa: E731
    kind = rng.integers(10 if depth else 6)
    n = int(rng.integers(1, 4))
    match kind:
        case 0 | 1:
            return box(rng)
        case 2:
            return spaces.Discrete(int(rng.integers(1, 6)), start=int(rng.integers(-3, 4)))
        case 3:
            return spaces.MultiDiscrete(rng.integers(1, 5, size=(n, 2)), start=rng.integers(-3, 3, size=(n, 2)))
        case 4:
            return spaces.MultiBinary([n, 2])
        case 5:
            return spaces.Text(8, min_length=0, charset="abcdé")
        case 6 | 7:
            return spaces.Dict({key: inner(key) for key in "cab"[:n]})
        case 8:
            return spaces.Tuple([inner(k) for k in range(n)])
    bounds[path or "element"] = 60
    return spaces.Sequence(inner("items"), stack=bool(rng.integers(2)))


def same(one: Any, other: Any) -> bool:
    """Whether two elements are equal in structure, shape, type and bits."""
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray) and one.ndim:
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(other) in (type(one), int, np.ndarray) and np.array_equal(one, other)


def test_elements_of_random_nested_spaces_come_back_exactly() -> None:
    for seed in range(120):
        comes_back(seed)


def comes_back(seed: int) -> None:
    """Write, read, batch, save and pickle elements of the random space of a seed."""
    rng, bounds = np.random.default_rng(seed), dict[str, Any]()
    space = random_space(rng, 3, "", bounds)
    space.seed(seed)
    layout = Layout.of(space, bounds, [])
    elements = [space.sample() for _ in range(6)]
    rows = layout.zeros(6)
    write, read = layout.writer(rows), layout.reader(rows)
    for k in (3, 3, 0, 5, 1, 2, 4):  # rows are written over, and what was longer before leaves nothing behind
        write(k, elements[(k + 1) % 6])
        write(k, elements[k])
    assert all(same(element, read(k)) for k, element in enumerate(elements))
    assert all(read(k) in space for k in range(6))

    fresh = layout.zeros(6)
    write = layout.writer(fresh)
    for k, element in enumerate(elements):
        write(k, element)
    assert fresh.tobytes() == rows.tobytes()

    fill = layout.filler(filled := layout.zeros(6))
    if fill is not None:
        fill(slice(0, 3), elements[:3])
        fill(np.array([5, 3, 4]), [elements[k] for k in (5, 3, 4)])
        assert filled.tobytes() == rows.tobytes()

    packed = layout.zeros(6)
    layout.pack(layout.batch(rows), packed)
    assert packed.tobytes() == rows.tobytes()

    file = io.BytesIO()
    np.savez(file, rows=np.concatenate([rows, rows])[[1, 0]])
    saved = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)["rows"]
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout and hash(again) == hash(layout)
    assert same(elements[0], again.reader(saved)(1))

    features = layout.features(rows)
    assert features.shape == (6, len(layout.is_real)) and features.dtype == np.float32 and np.isfinite(features).all()
    assert layout.features(rows.reshape(2, 3, *rows.shape[1:])).tobytes() == features.tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_views_in_torch_are_the_same_numbers(seed: int) -> None:
    rng, bounds = np.random.default_rng(seed), dict[str, Any]()
    space = spaces.Dict({"a": random_space(rng, 2, "a", bounds), "b": box(rng)})
    layout = Layout.of(space, bounds, [])
    rows = layout.zeros(3)
    write = layout.writer(rows)
    for k in range(3):
        write(k, space.sample())
    octets = torch.from_numpy(rows.view(np.uint8).reshape(3, -1))
    for leaf in layout.leaves:
        dtype = np.dtype(leaf.dtype)
        if dtype.kind == "U" or dtype == np.uint16:
            continue  # torch has no text, and no views of that type
        size = dtype.itemsize * int(np.prod(leaf.shape))
        kind = getattr(torch, "bool" if dtype.kind == "b" else dtype.name)
        view = octets.narrow(1, leaf.offset, size).view(kind).view(3, *leaf.shape)
        fields: Any = layout.fields(rows)
        for key in leaf.path:
            fields = fields[key]
        assert view.numpy().tobytes() == np.ascontiguousarray(fields).tobytes()


F4, U1 = np.float32, np.uint8


def test_features_are_numbers_pixels_between_0_and_1_and_choices_one_hot() -> None:
    space = spaces.Dict(
        {
            "bits": spaces.MultiBinary(2),
            "camera": spaces.Box(0, 255, (1, 2), U1),
            "gear": spaces.Discrete(3, start=-1),
            "pair": spaces.MultiDiscrete([2, 3], start=[0, 5]),
            "say": spaces.Text(4),
            "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "things": spaces.Sequence(spaces.Box(0, 1, (1,), F4)),
        }
    )
    layout = Layout.of(space, {"things": 3}, [])
    rows = layout.zeros(1)
    layout.writer(rows)(
        0,
        {
            "bits": np.array([1, 0], np.int8),
            "camera": np.array([[51, 255]], U1),
            "gear": 1,
            "pair": np.array([1, 6]),
            "say": "ab",
            "speed": np.array([2.5, -3]),
            "things": (np.array([0.5], F4), np.array([0.25], F4)),
        },
    )
    expected = [1, 0, 0.2, 1, 0, 0, 1, 0, 1, 0, 1, 0, 2.5, -3, 1, 1, 0, 0.5, 0.25, 0]
    assert layout.features(rows)[0].tolist() == pytest.approx(expected)
    # Real are the speed and the things.
    assert np.flatnonzero(layout.is_real).tolist() == [12, 13, 17, 18, 19]


NESTED = spaces.Dict(
    a=spaces.Tuple([spaces.Box(0, 1, (2,), F4), spaces.Box(0, 255, (2, 2), U1)]),
    n=spaces.Discrete(4, start=1),
    t=spaces.Text(3, min_length=0),
    s=spaces.Sequence(spaces.Discrete(2)),
    m=spaces.MultiBinary(2),
)
ELEMENT: dict[str, Any] = {
    "a": (np.zeros(2, F4), np.zeros((2, 2), U1)),
    "n": 1,
    "t": "a",
    "s": (0, 1),
    "m": np.zeros(2, np.int8),
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a shape that would broadcast": (
        {"a": (np.zeros(1, F4), np.zeros((2, 2), U1))},
        r"shape (1,) at ['a'][0], expected (2,)",
    ),
    "a number too large for a byte": (
        {"a": (np.zeros(2, F4), np.full((2, 2), 300))},
        "300 at ['a'][1], expected uint8",
    ),
    "a part too many": ({"a": (np.zeros(2, F4), 0, 0)}, "3 parts at ['a'], expected 2"),
    "a choice that is none": ({"n": 0}, "0 at ['n'], expected 1 to 4"),
    "a sequence too long": (
        {"s": (0, 1, 1)},
        "3 items at ['s'], expected at most 2; increase env.bounds.s",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_element_is_refused_with_its_place(name: str) -> None:
    wrong, message = WRONG[name]
    layout = Layout.of(NESTED, {"s": 2}, [])
    write = layout.writer(layout.zeros(1))
    write(0, ELEMENT)
    with pytest.raises(SpaceMismatch) as error:
        write(0, ELEMENT | wrong)
    assert str(error.value) == message


@pytest.mark.parametrize("wrong", [[-1, 5], [0, 8]])
def test_numbers_that_are_no_choices_are_refused_alone_and_among_many(wrong: list[int]) -> None:
    layout = Layout.of(spaces.MultiDiscrete([2, 3], start=[0, 5]), {}, [])
    rows = layout.zeros(2)
    write, fill = layout.writer(rows), layout.filler(rows)
    assert fill is not None
    fill_both = fill
    for enter in (
        lambda one: write(0, np.array(one)),
        lambda one: write(0, one),
        lambda one: fill_both(slice(0, 2), [np.array([1, 7]), np.array(one)]),
        lambda one: layout.pack(np.array([[1, 7], one]), rows, choices=True),
    ):
        enter([0, 5])
        with pytest.raises(SpaceMismatch, match=r"^-?\d at \[[01]\], expected (0 to 1|5 to 7)$"):
            enter(wrong)


REFUSED = {
    "a sequence without a bound": (
        spaces.Dict(s=spaces.Sequence(spaces.Discrete(2))),
        {},
        [],
        "the space at s is a Sequence, whose elements vary in size; set an upper bound by "
        "+env.bounds.s=n, or exclude it with env.without=[s], or wrap the environment",
    ),
    "a sequence that is left out by a mistyped name": (
        spaces.Dict(seen=spaces.Dict(pile=spaces.Sequence(spaces.Discrete(2)))),
        {},
        ["seen.pil"],
        "env.without=seen.pil is not a part of the space; did you mean 'seen.pile'?",
    ),
    "a bound for what has none": (
        spaces.Dict(speed=spaces.Discrete(2), say=Mission()),
        {"say": 3, "sya": 2},
        [],
        "env.bounds.sya is not a text or sequence; did you mean 'say'?",
    ),
    "nothing left": (
        spaces.Dict(camera=spaces.Discrete(2)),
        {},
        ["camera"],
        "env.without removes all of Dict('camera': Discrete(2)); shorten it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_space_that_cannot_be_laid_out_says_what_to_set(name: str) -> None:
    space, bounds, without, message = REFUSED[name]
    with pytest.raises(ConfigError) as error:
        Layout.of(space, bounds, without)
    assert str(error.value) == message
