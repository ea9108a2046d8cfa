"""Checkpoints: what they keep comes back as it was, and a damaged one costs no more than itself."""

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.runs.checkpoint import CheckpointError, Checkpoints, check_fits, read
from paddock.runs.identity import changed_keys


def state(iteration: int) -> dict[str, Any]:
    array = np.arange(5.0) * iteration
    return {"algorithm": {"mean": array, "deep": {"count": 3, "rate": 0.1}}, "loop": {"iteration": iteration}}


def test_a_checkpoint_goes_round_unchanged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(7, state(7))
    loaded = read(path)
    np.testing.assert_array_equal(loaded["algorithm"]["mean"], state(7)["algorithm"]["mean"])
    assert loaded["algorithm"]["deep"] == {"count": 3, "rate": 0.1}
    with np.load(path) as archive:  # readable without this program
        assert json.loads(str(archive["plain"]))["loop"] == {"iteration": 7}


def test_the_folder_of_checkpoints_is_found_again_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("paddock.runs.checkpoint.sync", synced.append)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for iteration in (1, 2):
        checkpoints.save(iteration, state(iteration))
    assert synced == [tmp_path, tmp_path / "checkpoints", tmp_path / "checkpoints"]


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
def test_whatever_a_checkpoint_keeps_comes_back_in_value_and_type(plain: dict[str, Any], tmp_path: Path) -> None:
    assert_equal(read(Checkpoints(tmp_path / "checkpoints", keep=1).save(1, plain)), plain)


@pytest.mark.parametrize(
    ("value", "kind"),
    [({1, 2}, "set"), (np.array([None]), "object"), (b"x", "bytes"), (Path("x"), "Path"), ({(1, 2): 3}, "dict")],
)
def test_what_a_checkpoint_cannot_keep_is_refused_by_its_leaf(value: Any, kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=rf"'algorithm.deep.1' holds a \w*{kind}.*; allowed: None, numbers"
    ) as caught:
        Checkpoints(tmp_path / "checkpoints", keep=1).save(1, {"algorithm": {"deep": [0, value]}})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "checkpoints").exists()


def test_a_checkpoint_cut_off_at_any_byte_never_loses_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest = checkpoints.save(2, state(2))
    whole = newest.read_bytes()
    for length in range(len(whole)):
        newest.write_bytes(whole[:length])
        loaded = checkpoints.load()
        assert loaded is not None and loaded["loop"]["iteration"] == 1, length
    newest.write_bytes(whole)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 2


def test_a_flipped_byte_in_an_array_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(1, state(1))
    content = bytearray(path.read_bytes())
    where = content.find(np.arange(5.0).tobytes())
    content[where + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read(path)


def test_a_flipped_bit_that_makes_an_array_look_encrypted_is_damage(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    path = checkpoints.save(2, state(2))
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 8] ^= 1  # the flags of the first entry of the archive's directory
    path.write_bytes(content)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 1


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for iteration in (1, 5, 9, 100):
        checkpoints.save(iteration, state(iteration))
    assert [path.name for path in checkpoints.paths()] == ["00000100.npz", "00000009.npz"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_copy_kept_beside_them_is_no_checkpoint_and_stays(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    copy = checkpoints.save(9, state(9)).rename(tmp_path / "checkpoints" / "00000009-best.npz")
    assert checkpoints.newest is None and checkpoints.load() is None
    for iteration in (99_999_999, 100_000_000):  # longer names, which are not in the order of the alphabet
        checkpoints.save(iteration, state(iteration))
    assert checkpoints.newest == 100_000_000 and len(checkpoints.paths()) == 1 and copy.exists()


def test_a_damaged_checkpoint_never_pushes_out_those_saved_after_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    checkpoints.save(9, state(9)).write_bytes(b"cut off")
    (tmp_path / "checkpoints" / ".00000008.npz.tmp").write_bytes(b"of a writer that was killed")
    checkpoints.save(5, state(5))
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 5
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000005.npz"]


def test_a_checkpoint_that_the_disk_will_not_give_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest, load = checkpoints.save(2, state(2)), np.load

    def fail(path: Path, **settings: Any) -> Any:
        if path == newest:
            raise OSError(errno.EIO, "Input/output error")
        return load(path, **settings)

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(CheckpointError, match="Input/output error"):
        checkpoints.load()


def test_a_misfit_names_the_leaf_and_both_shapes() -> None:
    expected = {"a": {"mean": np.zeros((3, 2))}, "n": 1}
    with pytest.raises(CheckpointError, match=r"'a.mean' has shape \(4,\) in the checkpoint and \(3, 2\)"):
        check_fits({"a": {"mean": np.zeros(4)}, "n": 1}, expected)
    with pytest.raises(CheckpointError, match="lacks 'n'"):
        check_fits({"a": {"mean": np.zeros((3, 2))}}, expected)


def test_mappings_that_begin_empty_or_are_keyed_by_numbers_grow() -> None:
    check_fits({"q": {"left": 1.0}, "niches": {3: [1], 7: [2]}}, {"q": {}, "niches": {0: []}})


def test_changed_keys_are_named_and_where_it_runs_may_change() -> None:
    old = {"algo": {"sigma": 0.1, "pairs_per_task": 4}, "seed": 1, "compute": {"workers": 2}}
    new = {"algo": {"sigma": 0.2, "pairs_per_task": None}, "seed": 1, "compute": {"workers": 9}}
    assert changed_keys(old, new) == ["algo.sigma was 0.1 and is now 0.2"]
