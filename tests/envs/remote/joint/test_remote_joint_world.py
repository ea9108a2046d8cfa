"""A joint world by itself, without a server: who is late, lost or stood in for, and clients that disagree."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode

from paddock.envs.vector import Serial, VectorMisuse
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.storage import Layouts

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.server.joint import JointWorld  # noqa: E402
from paddock.envs.remote.server.policies import Policies  # noqa: E402
from paddock.envs.remote.server.seats import SeatsVectorEnv  # noqa: E402


class World:
    """A joint world of a and b without a server, and what the environment was given."""

    def __init__(
        self,
        steps: Any = ({"agents": "ab"},) * 9,
        autoreset: AutoresetMode = AutoresetMode.DISABLED,
        **changes: Any,
    ) -> None:
        spec = env_spec("toy_worlds:Scripted", kwargs={"agents": "ab", "steps": list(steps)})
        self.now = 0.0
        given: dict[str, Any] = {"late": "wait", "late_s": 30.0, "lost": "wait", "lost_s": 60.0}
        venv = Serial(num_envs=1).make(spec, autoreset=AutoresetMode.DISABLED, packed=True)
        layouts = Layouts.of_seats(spec, spec.seating)
        policies = Policies(**(given | changes))
        self.joint = JointWorld("game", venv, layouts, spec.roles, policies, lambda: self.now)
        self.a, self.b = (SeatsVectorEnv(self.joint, [agent], autoreset=autoreset) for agent in "ab")
        self.taken = venv.envs[0].taken

    def begin(self, *seeds: int | None) -> None:
        """Have both begin, each by a seed."""
        self.call_both(lambda one: one.reset(seed=[seeds[one is self.b]]))

    def call_both(self, call: Callable[[SeatsVectorEnv], Any]) -> list[Any]:
        """Do something with both at once."""
        with ThreadPoolExecutor(2) as pool:
            return [done.result(10) for done in [pool.submit(call, one) for one in (self.a, self.b)]]

    def step(self, a: int, b: int) -> None:
        self.a.send(np.array([a]))
        self.b.send(np.array([b]))
        for one in (self.a, self.b):
            assert "timed" not in one.recv()[4]


@pytest.mark.parametrize(("policy", "stood_in"), [("noop", 0), ("last", 7), ("truncate", None)])
@pytest.mark.parametrize("why", ["late", "lost"])
def test_who_is_missing_for_too_long_is_stood_in_for_and_all_are_told(policy: Any, stood_in: Any, why: str) -> None:
    world = World(**{why: policy})
    world.begin(3, 3)
    world.step(5, 7)
    if why == "lost":
        world.b.close()
    world.a.send(np.array([4]))
    assert world.a.wait_for_first([], lambda: True) is None  # called away: nothing came of it
    world.now += 29 if why == "late" else 59
    assert world.a.wait_for_first([], lambda: True) is None
    world.now += 2
    _, _, _, truncated, infos = world.a.recv()
    assert infos["timed"].all() and truncated.tolist() == infos["over"].tolist() == [policy == "truncate"]
    assert world.taken[1:] == ([] if stood_in is None else [{"a": 4, "b": stood_in}])
    if why == "late":
        world.b.send(np.array([9]))  # too late: it is told what came of the other
        assert world.b.recv()[4]["timed"].all() and len(world.taken) == (1 if stood_in is None else 2)
    if policy == "truncate":
        assert infos["final_info"]["episode"]["l"].tolist() == [1]


def test_a_run_has_its_own_episodes_whatever_a_client_comes_back_to() -> None:
    world = World()
    world.b.replaying = world.b.chosen = True
    with pytest.raises(VectorMisuse, match=r"different episodes \(a: episode 2 of its run; b: seed=7\); runs go on"):
        world.call_both(lambda one: one.reset(seed=[7]) if one is world.b else one.begin(1, [2]))
    world.b.replaying = world.b.chosen = False
    world.call_both(lambda one: one.reset(seed=[None]) if one is world.b else one.begin(1, [2]))
    assert world.a.seed == world.b.seed == keyed_seed(1, 0, 2)


def test_who_waits_has_no_clock() -> None:
    world = World()
    world.begin(None, 3)
    world.a.send(np.array([4]))
    world.b.close()
    world.now += 1e9
    assert world.a.wait_for_first([], lambda: True) is None
    with pytest.raises(VectorMisuse, match="a is another client's in world game; free are b"):
        SeatsVectorEnv(world.joint, ["a", "b"])
    another = SeatsVectorEnv(world.joint, ["b"])
    assert another.reset(seed=[None])[0].tolist() == [[0, 1]]  # comes to the running episode
    another.send(np.array([1]))
    assert "timed" not in world.a.recv()[4] and world.taken == [{"a": 4, "b": 1}]


@pytest.mark.parametrize(
    ("policies", "b_leaves", "now", "expected"),
    [
        ({"lost": "noop"}, False, 40.0, 1.0),  # it is late, for which all wait
        ({"late": "noop"}, True, 40.0, 1.0),  # it is lost, for which all wait
        ({"late": "noop", "lost": "noop"}, False, 29.5, 0.5),
        ({"late": "noop", "lost": "noop"}, True, 59.75, 0.25),
        ({"late": "noop", "lost": "noop"}, True, 40.0, 1.0),
    ],
)
def test_who_waits_wakes_when_somebody_may_have_to_stand_in_and_not_all_the_time(
    policies: Any, b_leaves: bool, now: float, expected: float
) -> None:
    class Called(Exception):
        pass

    def wait(timeout: float) -> None:
        assert timeout == pytest.approx(expected)
        raise Called

    world = World(**policies)
    world.begin(3, 3)
    if b_leaves:
        world.b.close()
    world.a.send(np.array([4]))
    world.now += now
    world.joint.changed.wait = wait  # type: ignore[assignment, method-assign]
    with pytest.raises(Called):
        world.a.recv()


def test_who_comes_and_who_leaves_has_those_who_wait_look_at_the_clock_anew() -> None:
    world = World(late="noop", lost="noop")
    told = []
    world.joint.changed.notify_all = lambda: told.append(world.now)  # type: ignore[method-assign]
    world.b.close()
    assert len(told) == 1
    SeatsVectorEnv(world.joint, ["b"])
    assert len(told) == 2


def test_options_of_a_reset_are_the_same_where_their_arrays_and_nans_are() -> None:
    def given(last: float) -> Any:
        return {
            "place": {"from": np.array([1.0, last])},
            "wind": [float("nan"), 2],
            "kinds": np.array([1, "a"], object),
        }

    world = World()
    world.call_both(lambda one: one.reset(seed=[0], options=given(2.0)))
    others = (given(3.0), given(2.0) | {"wind": [2, float("nan")]}, given(2.0) | {"kinds": [1, "a"]}, {"wind": 2})
    for options in others:
        of = {world.a: options, world.b: given(2.0)}
        with pytest.raises(VectorMisuse, match="different episodes"):
            world.call_both(lambda one: one.reset(seed=[0], options=of[one]))  # noqa: B023


def test_clients_that_disagree_are_both_named() -> None:
    world = World()
    with pytest.raises(VectorMisuse, match=r"different episodes \(a: seed=1; b: seed=2\); name one seed"):
        world.begin(1, 2)
    world.begin(1, None)
    world.b.send(np.array([1]))
    with pytest.raises(VectorMisuse, match="joint world game: a asks for a reset where b acts; reset all"):
        world.a.reset(seed=[1])
    with pytest.raises(VectorMisuse, match="joint world game: a asks for a reset where b acts"):
        world.b.recv()
    world = World(autoreset=AutoresetMode.SAME_STEP)
    with pytest.raises(
        VectorMisuse, match=r"\(a: episode 4 of its run; b: episode 3 of its run\); .*: delete the newest"
    ):
        world.call_both(lambda one: one.begin(1, [4 if one is world.a else 3]))


def test_a_client_whose_agents_have_died_waits_for_the_next_episode_and_holds_up_nobody() -> None:
    steps = [{"agents": "a", "terminated": "b"}, {"agents": "a"}, {"agents": "", "truncated": "a"}]
    world = World(steps=steps)
    world.begin(3, 3)
    world.step(1, 2)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(world.b.reset, seed=[4])
        for _ in steps[1:]:
            world.a.send(np.array([1]))
            over = world.a.recv()[4]["over"]
        assert over.all() and not again.done()
        assert world.a.reset(seed=[4])[0].tolist() == [[0, 0]]
        assert again.result(10)[0].tolist() == [[0, 1]]
    assert world.taken == [{"a": 1, "b": 2}, {"a": 1}, {"a": 1}]
