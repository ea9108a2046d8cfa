"""Checkpoints: what they keep comes back as it was, and a damaged one costs no more than itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.runs.checkpoint import FORMAT, CheckpointError, Checkpoints, FormatError, check_fits, read
from paddock.runs.identity import changed_keys


def state(iteration: int) -> dict[str, Any]:
    array = np.arange(5.0) * iteration
    return {"algorithm": {"mean": array, "deep": {"count": 3, "rate": 0.1}}, "loop": {"iteration": iteration}}


def test_checkpoint_is_read_back_and_readable_by_numpy(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(7, state(7))
    loaded = read(path)
    np.testing.assert_array_equal(loaded["algorithm"]["mean"], state(7)["algorithm"]["mean"])
    assert loaded["algorithm"]["deep"] == {"count": 3, "rate": 0.1}
    with np.load(path) as archive:  # readable without this program
        assert json.loads(str(archive["plain"]))["loop"] == {"iteration": 7}


PLAIN_DATA = {
    "arrays in lists": {"means": [np.arange(3.0), [np.ones((2, 0), np.float32)]], "none": []},
    "tuples": {"shape": (1, (2.5, None)), "pair": [(True, "x")]},
    "keys that are no text": {"niches": {3: np.arange(3), 0: {"a": 1}, None: 2, 2.5: 3, True: 4}},
    "scalars": {
        "f": np.float32(0.1),
        "d": np.float64(0.1),
        "i": np.int16(-3),
        "b": np.bool_(True),
        "nan": float("inf"),
    },
    "names that savez takes": {"file": np.arange(2), "allow_pickle": np.arange(3), "plain": np.arange(4)},
    "names spelled alike": {"a.b": np.arange(2), "a": {"b": np.arange(3)}, "x": np.ones(1), "x.npy": np.ones(2)},
    "names of tags": {"a": {"__array__": True}, "b": {"__tuple__": [1]}, "c": {"__scalar__": ["<f4", 1]}},
    "dtypes and orders": {"f": np.asfortranarray(np.ones((2, 3))), "zero": np.array(5), "u": np.array(["ab", "c"])},
}


def assert_equal(one: Any, other: Any) -> None:
    """Equal in value and type, at any depth."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other) and list(map(type, one)) == list(map(type, other))
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for item, same in zip(one, other, strict=True):
            assert_equal(item, same)
    elif isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other


@pytest.mark.parametrize("plain", PLAIN_DATA.values(), ids=PLAIN_DATA.keys())
def test_state_is_restored_in_value_and_type(plain: dict[str, Any], tmp_path: Path) -> None:
    assert_equal(read(Checkpoints(tmp_path / "checkpoints", keep=1).save(1, plain)), plain)


@pytest.mark.parametrize(
    ("value", "kind"),
    [({1, 2}, "set"), (np.array([None]), "object"), (b"x", "bytes"), (Path("x"), "Path"), ({(1, 2): 3}, "dict")],
)
def test_other_data_is_refused_by_its_leaf(value: Any, kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=rf"'algorithm.deep.1' holds a \w*{kind}.*; allowed: None, numbers"
    ) as caught:
        Checkpoints(tmp_path / "checkpoints", keep=1).save(1, {"algorithm": {"deep": [0, value]}})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "checkpoints").exists()


def test_checkpoint_cut_off_anywhere_falls_back_to_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest = checkpoints.save(2, state(2))
    whole = newest.read_bytes()
    for length in range(0, len(whole), 11):
        newest.write_bytes(whole[:length])
        loaded = checkpoints.load()
        assert loaded is not None and loaded["loop"]["iteration"] == 1, length
    newest.write_bytes(whole)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 2


def test_other_format_version_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    with monkeypatch.context() as patch:
        patch.setattr("paddock.runs.checkpoint.FORMAT", FORMAT + 1)
        checkpoints.save(2, state(2))
    with pytest.raises(
        FormatError, match=rf"has format version {FORMAT + 1}, but this Paddock reads version {FORMAT};"
    ):
        checkpoints.load()


def test_flipped_byte_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(1, state(1))
    content = bytearray(path.read_bytes())
    where = content.find(np.arange(5.0).tobytes())
    content[where + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read(path)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for iteration in (1, 5, 9, 100):
        checkpoints.save(iteration, state(iteration))
    assert [path.name for path in checkpoints.paths()] == ["00000100.npz", "00000009.npz"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_damaged_checkpoint_never_replaces_one_saved_after_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    checkpoints.save(9, state(9)).write_bytes(b"cut off")
    (tmp_path / "checkpoints" / ".00000008.npz.tmp").write_bytes(b"of a writer that was killed")
    checkpoints.save(5, state(5))
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 5
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000005.npz"]


def test_mismatch_names_leaf_and_shapes() -> None:
    expected = {"a": {"mean": np.zeros((3, 2))}, "n": 1}
    with pytest.raises(CheckpointError, match=r"'a.mean' has shape \(4,\) in the checkpoint and \(3, 2\)"):
        check_fits({"a": {"mean": np.zeros(4)}, "n": 1}, expected)
    with pytest.raises(CheckpointError, match="lacks 'n'"):
        check_fits({"a": {"mean": np.zeros((3, 2))}}, expected)


def test_empty_and_numbered_mappings_may_grow() -> None:
    check_fits({"q": {"left": 1.0}, "niches": {3: [1], 7: [2]}}, {"q": {}, "niches": {0: []}})


def test_changed_keys_are_named_without_those_of_the_place() -> None:
    old = {"algo": {"sigma": 0.1, "pairs_per_task": 4}, "seed": 1, "compute": {"workers": 2}}
    new = {"algo": {"sigma": 0.2, "pairs_per_task": None}, "seed": 1, "compute": {"workers": 9}}
    assert changed_keys(old, new) == ["algo.sigma was 0.1 and is now 0.2"]
