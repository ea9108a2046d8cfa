"""Environments stepped in groups: each worker has a part of each, and goes on with one while another is looked at."""

import random
from typing import Any

import numpy as np
import pytest
from vector_cases import (  # noqa: F401
    FAULTS,
    SERIAL,
    TASKS,
    N,
    actions_for,
    assert_same,
    faulty,
    make_fixture,
    multiprocess,
    workers_of,
)

from paddock.envs.vector import Multiprocess, in_groups

PLAIN = faulty("")
TURN = np.zeros(N, int)


def grouped(groups: int = 2, **changes: Any) -> Any:
    return in_groups(multiprocess(**changes), groups)


def parts(groups: int, num_envs: int = N) -> list[slice]:
    size = num_envs // groups
    return [slice(start, start + size) for start in range(0, num_envs, size)]


@pytest.mark.parametrize(
    ("recipe", "groups", "shared"),
    [
        (multiprocess(), 2, True),
        (multiprocess(workers=2), 3, True),
        (multiprocess(workers=2), 2, False),  # of three each, which are not two workers' alike
        (multiprocess(batch_size=4), 2, False),  # whoever comes first makes a batch, of whole workers
    ],
)
def test_each_worker_has_a_part_of_each_group_where_they_divide_so(
    make: Any, recipe: Multiprocess, groups: int, shared: bool
) -> None:
    vec = make(in_groups(recipe, groups), PLAIN)
    vec.reset(seed=1)
    processes = np.array(vec.call("process"))
    everybody = set(processes.tolist())
    assert len(everybody) == recipe.processes
    assert all(set(processes[rows].tolist()) == everybody for rows in parts(groups)) == shared


@pytest.mark.parametrize(("task", "groups", "workers"), [("box", 2, 3), ("parts", 3, 2)])
def test_groups_in_any_order_give_what_serial_gives(make: Any, task: str, groups: int, workers: int) -> None:
    spec, chance = TASKS[task], random.Random(groups)
    ours, other = make(grouped(groups, workers=workers), spec), make(SERIAL, spec)
    assert_same(ours.begin(5)[0], other.begin(5)[0])
    turns = actions_for(other, 30)
    expected = {(t, k): None for t in range(len(turns)) for k in range(groups)}
    for t, action in enumerate(turns):
        for k, rows in enumerate(parts(groups)):
            other.send(pick(action, rows), rows)
            expected[t, k] = other.recv(rows)
    done, under_way = [0] * groups, set[int]()
    while min(done) < len(turns):
        k = chance.randrange(groups)
        rows = parts(groups)[k]
        if k in under_way:
            assert_same(ours.recv(rows), expected[done[k], k])
            under_way.remove(k)
            done[k] += 1
        elif done[k] < len(turns):
            ours.send(pick(turns[done[k]], rows), rows)
            under_way.add(k)


def pick(actions: Any, rows: slice) -> Any:
    if isinstance(actions, dict):
        return {key: pick(one, rows) for key, one in actions.items()}
    return tuple(pick(one, rows) for one in actions) if isinstance(actions, tuple) else actions[rows]


@pytest.mark.parametrize("fault", ["raise", "kill"])
def test_of_a_replaced_worker_the_parts_of_all_groups_end_truncated(make: Any, fault: str) -> None:
    vec = make(grouped(restart=True), faulty(fault))
    vec.reset(seed=100)
    mine = np.array(vec.call("process"))
    lost = mine == mine[4]
    assert lost.tolist() == [False, True, False, False, True, False]
    vec.step(TURN)
    cuts, rewards = np.zeros(N, bool), np.zeros(N)
    for _ in range(2):  # a group's step may have been done, and received, before the worker was lost
        for rows in parts(2):
            vec.send(TURN[rows], rows)
        for rows in parts(2):
            _, reward, terminated, truncated, _ = vec.recv(rows)
            cuts[rows] |= truncated
            rewards[rows] += reward
            assert not terminated.any()
    assert cuts.tolist() == lost.tolist() and vec.restarts == 1
    assert rewards[~lost].tolist() == [2.0] * 4 and rewards[4] == 1.0 and rewards[1] in (1.0, 2.0)
    assert vec.step(TURN)[1].tolist() == [1.0] * N and not vec.step(TURN)[3].any()


def test_workers_killed_at_any_moment_cost_episodes_and_no_turn(make: Any) -> None:
    chance = random.Random(0)
    vec = make(grouped(3, workers=2, restart=True), PLAIN)
    vec.begin(7)
    kills, steps = 0, np.zeros(N, int)
    for turn in range(40):
        for rows in parts(3):
            vec.send(TURN[rows], rows)
            if turn % 8 == 4 and chance.random() < 0.5 and kills < 4:
                chance.choice(workers_of(vec)).kill()
                kills += 1
        for rows in chance.sample(parts(3), 3):
            seen, _, _, truncated, infos = vec.recv(rows)
            steps[rows] += 1
            assert (seen[truncated][:, 0] == 0).all() and infos["env_id"].tolist() == list(range(N)[rows])
    assert steps.tolist() == [40] * N and kills and 1 <= vec.restarts <= kills
