"""Members of a population that learn by an algorithm of their own: how they are made, and a round of one on a worker.

What a round gives depends on the member as it was and on the round's number alone. Every round builds the algorithm
anew and brings it to its state, as a resumed run does: its laws say that this changes no number.
"""

import errno
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.disk import sync
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.common.threads import one_thread
from paddock.algos.evolution.hyperparameters import Value
from paddock.algos.learning.policy_episodes import Performance, perform, threads_of
from paddock.algos.learning.replay.disk_space import ReplayRefused
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of a file system without them
LOST = float("-inf")  # the score of a member that was never evaluated: worse than any

# Where PPO's and A2C's states say, under these names, how the running episodes stand. These belong to a member's seed,
# so that whoever takes over what another has learned goes on in its own episodes.
STANDING = (("actors", ("start",)), ("normalization", ("running", "open")))

State = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """A member of the population, between two rounds."""

    seed: int  # of all that it draws; it keeps it for good
    settings: dict[str, Value]  # the hyperparameters that it learns by
    score: float  # mean return of the newest evaluation of what it has learned
    step: int  # environment steps that led to what it has learned
    state: State  # of its algorithm
    files: str = ""  # the folder of its algorithm's files, in that of all

    def take_over(self, source: "Member", settings: dict[str, Value], files: str) -> "Member":
        """This member with what another has learned, with these hyperparameters, and with files there."""
        state = dict(source.state)
        for part, names in STANDING:
            if part in state:
                state[part] = _with_own(state[part], self.state[part], names)
        if files:
            # What is stored goes on where the other's episodes are: this one's next ones begin.
            start = state["actors"]["start"]
            begun = start["length"] > 0
            nothing = {"saved": None, **{name: start[name][:0] for name in ("actions", "seen")}}
            zeros = {name: np.zeros_like(start[name]) for name in ("length", "state")}
            state["actors"] = {**state["actors"], "start": {"episode": start["episode"] + begun, **zeros, **nothing}}
        return Member(self.seed, settings, source.score, source.step, state, files)

    def state_dict(self) -> dict[str, Any]:
        """All of it, with files named by where they are in the folder of all."""
        if not self.files:
            return {name: value for name, value in vars(self).items() if name != "files"}
        placed = rename_attachments(self.state, lambda names: [f"{self.files}/{name}" for name in names])
        return vars(self) | {"state": placed}

    @classmethod
    def restore(cls, state: State) -> "Member":
        """The member that `state_dict` was of."""
        place = f"{state.get('files', '')}/"
        own = rename_attachments(state["state"], lambda names: [name.removeprefix(place) for name in names])
        return cls(**{**state, "state": own})

    def without_files(self) -> "Member":
        """This member as it acts: to learn on it would need its files."""
        return replace(self, state=rename_attachments(self.state, lambda names: []))


@dataclass(frozen=True)
class RoundSettings:
    """What stays the same for all members and rounds."""

    member: AlgorithmRecipe
    env: EnvSpec
    vec: Vec
    seed: int  # of the run
    interval: int
    eval_episodes: int
    eval_max_steps: int  # of an episode
    keep_files: bool  # members' algorithms keep files of their own
    folder: Path | None  # of all files, which every worker reaches by this path; None: nobody learns

    def make(self, settings: Mapping[str, Value], seed: int, files: str | None = None) -> Any:
        """A member's algorithm, at its beginning, on a pool that is this process.

        Args:
            files: its folder; None: it is not to learn.
        """
        given: dict[str, Any] = dict(settings)
        if self.keep_files:
            given["folder"] = None if files is None or self.folder is None else self.folder / files
        return self.member.make_alone(self.env, self.vec, seed, **given)

    def own_files(self, member: Member) -> str:
        """Return a new folder for one play of a round, with what it goes on from; "" where no files are kept.

        The same round may be played elsewhere still, unseen: by a worker that fell silent, or whose driver was killed.
        What such a one writes late must not reach files that others have gone on with.

        Raises:
            ReplayRefused: the disk refuses.
        """
        if not member.files:
            return ""
        files = f"{member.files.partition('.')[0]}.{secrets.token_hex(4)}"
        self.take_files(member, files)
        return files

    def take_files(self, source: Member, files: str) -> None:
        """Give the files that a member needs other names, in a folder of their own; nobody is at work on them.

        Raises:
            ReplayRefused: the disk refuses.
        """
        assert self.folder is not None
        names: list[str] = []
        rename_attachments(source.state, lambda listed: names.__iadd__(listed))
        place = self.folder / files
        try:
            place.mkdir(parents=True, exist_ok=True)
            folders = {(place / name).parent for name in names} | {place}  # of several policies each has one
            for folder in folders:
                folder.mkdir(exist_ok=True)
            for name in names:
                (place / name).unlink(missing_ok=True)  # of a run that was killed
                _link(self.folder / source.files / name, place / name)
            for folder in folders:
                sync(folder)
        except OSError as error:
            remedy = "make room, or mend that, and the same command with run.dir= goes on"
            raise ReplayRefused(f"replay {place} cannot be written ({error.strerror}); {remedy}") from error


@dataclass(frozen=True)
class RoundResult:
    """What a member came to in a round."""

    state: State
    metrics: dict[str, float]  # the last value of each
    returns: NDArray[np.float64]  # [eval_episodes], of its policy at the end
    lengths: NDArray[np.int64]  # [eval_episodes]
    env_metrics: NDArray[np.float64]  # [eval_episodes, M], reported by the environment in its infos
    files: str  # where those are that the state names


def play_round(rounds: RoundSettings, task: tuple[Member, int]) -> RoundResult:
    """Let a member learn for a round, and evaluate it, on a worker."""
    member, number = task
    files = rounds.own_files(member)
    with one_thread():
        algorithm = rounds.make(member.settings, member.seed, files)
        algorithm.load_state_dict(member.state)
        metrics: dict[str, float] = {}
        with closing(algorithm.plan()) as plan:
            for row in itertools.islice(plan, rounds.interval):
                metrics |= row
            state = algorithm.state_dict()
        # All members meet the same episodes, so that none is lucky.
        seeds = [episode_seed(rounds.seed, Stream.EVALUATION, number, k) for k in range(rounds.eval_episodes)]
        what = Performance(rounds.env, algorithm.policy(), rounds.eval_max_steps, stochastic=False, in_company=True)
        played = perform(what, seeds, threads_of(rounds.vec))
        return RoundResult(state, metrics, played.returns, played.lengths, played.env_metrics, files)


def rename_attachments(state: Any, rename: Callable[[list[str]], list[str]]) -> Any:
    """Return a state with other names of the files that it needs."""
    if isinstance(state, list | tuple):
        return type(state)(rename_attachments(item, rename) for item in state)
    if not isinstance(state, Mapping):
        return state
    return {
        name: rename(list(item)) if name == "attachments" else rename_attachments(item, rename)
        for name, item in state.items()
    }


def _with_own(state: State, own: State, names: Sequence[str]) -> State:
    """Return a part of a state with what another has under these names, of each policy where there are several."""
    policies = [name for name in names if isinstance(state.get(name), Mapping) and name in state[name]]
    if mine := {name: own[name] for name in names if name in state and name not in policies}:
        return {**state, **mine}
    return {policy: _with_own(part, own[policy], names) for policy, part in state.items()}


def _link(file: Path, other: Path) -> None:
    """Give a file another name too; where the file system has no hard links, copy it."""
    try:
        os.link(file, other)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(file, other)
        sync(other)
