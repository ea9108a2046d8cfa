"""Members of a PBT population, and their training rounds on workers.

A round's result depends only on the member's state and the round's number. Every round rebuilds the algorithm and
restores its state, as a resumed run does.
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
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy, threads_of
from paddock.algos.learning.replay.disk_space import ReplayRefused
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # no support for hard links
LOST = float("-inf")  # score of a member that has no evaluation or whose round failed

# Entries of the PPO and A2C states that hold the running episodes. They depend on a member's seed, so a member that
# copies the weights of another keeps its own entries.
EPISODE_STATE = (("actors", ("start",)), ("normalization", ("running", "open")))

State = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """Population member between two rounds."""

    seed: int  # random seed, constant for all rounds
    settings: dict[str, Value]  # hyperparameters
    score: float  # mean return of the weights in their last evaluation
    step: int  # environment steps that trained the weights
    state: State  # state of the algorithm
    files: str = ""  # folder of the algorithm's files, relative to `RoundSettings.folder`

    def copy_from(self, source: "Member", settings: dict[str, Value], files: str) -> "Member":
        """Return this member with the weights of `source`, and with new hyperparameters and files."""
        state = dict(source.state)
        for key, names in EPISODE_STATE:
            if key in state:
                state[key] = _keep_own(state[key], self.state[key], names)
        if files:
            # The copied replay ends in the source's unfinished episodes, so start new ones.
            start = state["actors"]["start"]
            started = start["length"] > 0
            empty = {"saved": None, **{name: start[name][:0] for name in ("actions", "seen")}}
            zeros = {name: np.zeros_like(start[name]) for name in ("length", "state")}
            state["actors"] = {**state["actors"], "start": {"episode": start["episode"] + started, **zeros, **empty}}
        return Member(self.seed, settings, source.score, source.step, state, files)

    def state_dict(self) -> dict[str, Any]:
        """Return all fields; file names are relative to `RoundSettings.folder`."""
        if not self.files:
            return {name: value for name, value in vars(self).items() if name != "files"}
        state = rename_attachments(self.state, lambda names: [f"{self.files}/{name}" for name in names])
        return vars(self) | {"state": state}

    @classmethod
    def restore(cls, state: State) -> "Member":
        """Restore a member from the result of `state_dict`."""
        folder = f"{state.get('files', '')}/"
        own = rename_attachments(state["state"], lambda names: [name.removeprefix(folder) for name in names])
        return cls(**{**state, "state": own})

    def without_files(self) -> "Member":
        """Return this member without files, for inference only."""
        return replace(self, state=rename_attachments(self.state, lambda names: []))


@dataclass(frozen=True)
class RoundSettings:
    """Settings shared by all members and rounds."""

    member: AlgorithmRecipe
    env: EnvSpec
    vec: Vec
    seed: int  # seed of the run
    interval: int  # iterations per round
    eval_episodes: int
    eval_max_steps: int  # step limit of an episode
    keep_files: bool  # whether members' algorithms keep files, such as replay
    folder: Path | None  # parent folder of all files, accessible to every worker; None: inference only

    def make(self, settings: Mapping[str, Value], seed: int, files: str | None = None) -> Any:
        """Build a member's algorithm in its initial state, with an in-process pool; files=None: inference only."""
        given: dict[str, Any] = {}
        for name, value in settings.items():
            component, _, key = name.rpartition(".")
            old: Any = given.get(component, self.member.settings.get(component))
            given |= {component: replace(old, **{key: value})} if component else {name: value}
        if self.keep_files:
            given["folder"] = None if files is None or self.folder is None else self.folder / files
        return self.member.make_alone(self.env, self.vec, seed, **given)

    def copy_files(self, member: Member) -> str:
        """Link a member's files into a new folder for one attempt at a round; return its name, "" without files.

        Each attempt needs its own files, because a worker presumed dead may still be running the same round.
        """
        if not member.files:
            return ""
        files = f"{member.files.partition('.')[0]}.{secrets.token_hex(4)}"
        self.link_files(member, files)
        return files

    def link_files(self, source: Member, files: str) -> None:
        """Link the files of a member, to which no process may be writing, into another folder; raise ReplayRefused."""
        assert self.folder is not None
        names: list[str] = []
        rename_attachments(source.state, lambda listed: names.__iadd__(listed))
        target = self.folder / files
        try:
            target.mkdir(parents=True, exist_ok=True)
            folders = {(target / name).parent for name in names} | {target}  # one per policy
            for folder in folders:
                folder.mkdir(exist_ok=True)
            for name in names:
                (target / name).unlink(missing_ok=True)  # left over from a killed run
                _link(self.folder / source.files / name, target / name)
            for folder in folders:
                sync(folder)
        except OSError as error:
            remedy = "free disk space or fix the error, then resume with the same command and run.dir="
            raise ReplayRefused(f"cannot write replay {target} ({error.strerror}); {remedy}") from error


@dataclass(frozen=True)
class RoundResult:
    """Result of a member's round."""

    state: State
    metrics: dict[str, float]  # last value of each metric
    returns: NDArray[np.float64]  # [eval_episodes], of the final policy
    lengths: NDArray[np.int64]  # [eval_episodes]
    env_metrics: NDArray[np.float64]  # [eval_episodes, M], reported by the environment in its infos
    files: str  # folder of the files named in `state`


def play_round(rounds: RoundSettings, task: tuple[Member, int]) -> RoundResult:
    """Train a member for one round on a worker, and evaluate it."""
    member, number = task
    files = rounds.copy_files(member)
    with one_thread():
        algorithm = rounds.make(member.settings, member.seed, files)
        algorithm.load_state_dict(member.state)
        metrics: dict[str, float] = {}
        with closing(algorithm.plan()) as plan:
            for row in itertools.islice(plan, rounds.interval):
                metrics |= row
            state = algorithm.state_dict()
        # All members are evaluated on the same episodes.
        seeds = [episode_seed(rounds.seed, Stream.EVALUATION, number, k) for k in range(rounds.eval_episodes)]
        spec = EvaluationSpec(rounds.env, algorithm.policy(), rounds.eval_max_steps, stochastic=False, batched=True)
        episodes = evaluate_policy(spec, seeds, threads_of(rounds.vec))
        return RoundResult(state, metrics, episodes.returns, episodes.lengths, episodes.env_metrics, files)


def rename_attachments(state: Any, rename: Callable[[list[str]], list[str]]) -> Any:
    """Apply `rename` to all lists of file names in a state."""
    if isinstance(state, list | tuple):
        return type(state)(rename_attachments(item, rename) for item in state)
    if not isinstance(state, Mapping):
        return state
    return {
        name: rename(list(item)) if name == "attachments" else rename_attachments(item, rename)
        for name, item in state.items()
    }


def _keep_own(state: State, own: State, names: Sequence[str]) -> State:
    """Return `state` with the named entries of `own`; with several policies, for each policy."""
    policies = [name for name in names if isinstance(state.get(name), Mapping) and name in state[name]]
    if kept := {name: own[name] for name in names if name in state and name not in policies}:
        return {**state, **kept}
    return {policy: _keep_own(entry, own[policy], names) for policy, entry in state.items()}


def _link(file: Path, other: Path) -> None:
    try:
        os.link(file, other)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(file, other)
        sync(other)
