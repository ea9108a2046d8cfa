"""Write a run's policy as an ONNX file, which other programs run without Paddock, and check it against ours.

python -m paddock.export RUN policy.onnx
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.envs.errors import ConfigError, PaddockError, install, require
from paddock.envs.spaces.views import flatten
from paddock.envs.spec import EnvSpec

from .config.command import Readers, check_output, parse, run_command, write_output
from .evaluation.load import load
from .evaluation.policy import find_member
from .evaluation.target import find_env, find_policy, find_target
from .runs.folder import read_config

GUIDE = """\
Write a run's policy as an ONNX file: its network, with the normalization of observations inside.

    python -m paddock.export RUN FILE.onnx [key=value ...]

    RUN                 the run's folder; of its newest checkpoint
    FILE.onnx           where the policy is written
    which=last          last: the policy as it is now; best: the best that an evaluation met
    of=prey             of several policies in a world: a policy's name, or an agent's
    niche=7             of a run of POET: this niche's own agent; else that of the newest active niche
    agent=3             in its place the agent of this niche

Input: `observation` [B, *shape], in the dtype in which the environment gives it. Of dictionaries, tuples and choices it
is the numbers [B, F] of all parts in their order, choices one-hot; images come as inputs of their own, by their paths
(as `observation.state` where `state` is a name of something else), and where a mask says what is legal, `legal` [B, W].
Outputs: `action` [B, ...], the most likely one, as the environment takes it (of a dictionary or tuple of actions one
for each part, such as `action.arm` and `action.legs.0`), and `output` [B, W], what the network gives for it: a score
for each choice, or the mean of an action.
A policy with a memory also takes `state` [B, S], zeros before an episode, and gives `next_state`.

Where onnxruntime is installed, the file is compared with the policy on observations of the environment before it is
written. pip install -c constraints.txt -e '.[export]' has what this needs.
"""
READERS: Readers = {
    "which": (str, "last or best"),
    "of": (str, "the name of a policy or of an agent"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
}
COMPARED = 256  # observations
TOLERANCE = 1e-3  # between outputs, of the greatest one or of 1: single precision, summed in other orders


class ExportFailed(PaddockError):
    """The file would not do what the policy does."""


@dataclass(frozen=True)
class Comparison:
    """How far a file and its policy are apart, on observations of the environment."""

    observations: int
    output: float  # largest difference of an output
    actions: int  # that differ: choices at all, continuous ones by more than the outputs may


@dataclass(frozen=True)
class Export:
    """A policy that was written down."""

    path: Path
    iteration: int  # that it is of
    inputs: dict[str, str]  # name -> dtype and shape
    outputs: dict[str, str]
    size: int  # bytes
    comparison: Comparison | None  # None: there is no onnxruntime here


def main() -> int:
    """The command `paddock.export`; see `run_command` for the exit codes."""
    return run_command(GUIDE, _command)


def export(
    run: Path,
    path: Path,
    *,
    which: str = "last",
    of: str | None = None,
    niche: int | None = None,
    agent: int | None = None,
) -> Export:
    """Write the policy of a run's newest checkpoint as an ONNX file.

    Args:
        run: the run's folder, which is only read.
        path: the file, *.onnx.
        which: last or best, where the algorithm keeps one.
        of: of several policies in a world, whose is wanted: the name of a policy, or of an agent.
        niche, agent: of a run of POET; see `find_target`.

    Raises:
        ExportFailed: the file would give other actions; it is not written.
        PaddockError: no run, no checkpoint or no such policy; a package is missing, or the file cannot be written.
    """
    check_output("FILE", path, (".onnx",))
    read_config(run)  # a folder that is none says so before a package is missed
    graphs = _import("onnx", "paddock.algos.networks.onnx_graph")
    algorithm, progress = load(run)
    target = find_target(algorithm, run, niche, agent)
    policy, iteration = find_policy(algorithm, run, which, target, progress)
    spec = find_env(algorithm, run, target)
    notes = {"environment": spec.id, "algorithm": type(algorithm).__name__, "iteration": str(iteration)}
    own, layout, _ = find_member(policy, spec, of)
    shape: Any = layout.space.shape
    model = graphs.build_model(own, tuple(shape or ()), np.dtype(layout.row.base), notes)
    content = model.SerializeToString()
    compared = _compare(content, policy, spec, of)
    write_output("FILE", path, content)
    inputs, outputs = (
        {value.name: _describe(value) for value in values} for values in (model.graph.input, model.graph.output)
    )
    return Export(path, iteration, inputs, outputs, len(content), compared)


def _import(package: str, module: str) -> Any:
    """A module of ours or of the package, which is not installed everywhere.

    Raises:
        ConfigError: the package is missing.
    """
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"export needs the package {package} ({error}); {install('export')}") from error
    return importlib.import_module(module)


def _compare(content: bytes, policy: Any, spec: EnvSpec, of: str | None = None) -> Comparison | None:
    """Run a file's content beside the policy that it is of, the only one or one of several.

    Raises:
        ExportFailed: they differ by more than rounding.
    """
    try:
        runtime = _import("onnxruntime", "onnxruntime")
    except ConfigError:
        return None
    own, _, space = find_member(policy, spec, of)
    obs, states, output, action = _visit(policy, own, spec)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given: dict[str, Any] = own.inputs.feed(obs)
    if len(session.get_inputs()) > len(given):
        given["state"] = states
    theirs, *their_actions = session.run(["output", *own.inputs.action_names], given)
    difference = float(np.abs(theirs - output).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(output).max()))
    differ = np.zeros(len(obs), np.bool_)
    for part, their_part in zip(_leaves(action, spec, space), their_actions, strict=True):
        rows = np.abs(their_part.astype(np.float64) - part).reshape(len(obs), -1).max(axis=1)
        differ |= rows > (0 if np.issubdtype(part.dtype, np.integer) else allowed)
    differing = int(differ.sum())
    said = f"outputs differ by {difference:.2g} on {len(obs)} observations, and {differing} actions differ"
    # A tie that rounding decides is no mistake.
    if not difference <= allowed or differing > len(obs) // 50:
        raise ExportFailed(f"{said}; the file was not written, please report this")
    return Comparison(len(obs), difference, differing)


def _leaves(actions: NDArray[Any], spec: EnvSpec, space: Any) -> list[NDArray[Any]]:
    """Actions as arrays [B, ...], one for each leaf of their space."""
    return [actions] if actions.dtype.kind != "V" else list(flatten(spec.lay_out_actions(space).fields(actions)))


class _Recorder:
    """Policy that keeps the observations that it meets, its memories before, its outputs and its actions."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.met: list[tuple[NDArray[Any], ...]] = []

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        output, after = self.policy.outputs(obs, state)
        acted = self.policy.act(obs, state)
        self.met.append((obs.copy(), _memory(state, after), output, acted[0]))
        return acted


def _visit(policy: Any, own: Any, spec: EnvSpec) -> list[NDArray[Any]]:
    """Play fresh episodes; return the observations that a policy meets, and what `_Recorder` keeps beside them.

    Args:
        policy: plays all seats.
        own: the policy that is recorded, one of its members or the only one.
    """
    recorder = _Recorder(own)
    seats = [policy.plays(seat) if isinstance(policy, JointPolicy) else own for seat in range(spec.seats)]
    plays = any(one is own for one in seats)  # else it is of a league, and plays all
    members = [recorder if one is own or not plays else one for one in seats]
    playing = recorder if spec.seats == 1 else JointPolicy(spec, members, range(spec.seats))
    recorder.met.clear()  # of seating
    episode = 0
    while len(recorder.met) < COMPARED:
        seed, episode = episode_seed(0, Stream.FRESH, 0, episode), episode + 1
        evaluate_policy(EvaluationSpec(spec, playing, COMPARED, stochastic=False), [seed])
    return [np.concatenate(column) for column in zip(*recorder.met[:COMPARED], strict=True)]


def _memory(before: Any, after: Any) -> NDArray[Any]:
    """A policy's memory before a step, zeros at first; [1, 0] of one that has none."""
    if before is not None:
        return np.asarray(before)
    return np.zeros((1, 0)) if after is None else np.zeros_like(after)


def _describe(value: Any) -> str:
    """The dtype and the shape of an input or output."""
    tensor = value.type.tensor_type
    shape = ", ".join(dimension.dim_param or str(dimension.dim_value) for dimension in tensor.shape.dim)
    helper = importlib.import_module("onnx.helper")
    return f"{helper.tensor_dtype_to_np_dtype(tensor.elem_type)} [{shape}]"


def _command(arguments: Sequence[str]) -> None:
    paths, options = parse("export", arguments, READERS)
    usage = "python -m paddock.export RUN FILE.onnx"
    require(len(paths) == 2, f"export takes RUN and FILE.onnx, and {len(paths)} are given; write {usage}")
    made = export(*paths, **options)
    lines = {
        "run": f"{paths[0]}, {options.get('which', 'last')} policy, of iteration {made.iteration:,}",
        **{f"input {name}": text for name, text in made.inputs.items()},
        **{f"output {name}": text for name, text in made.outputs.items()},
        "file": f"{made.path}, {made.size:,} bytes",
    }
    if made.comparison is None:
        lines["check"] = f"none; {install('export')} has what compares it with the policy"
    else:
        found = made.comparison
        lines["check"] = (
            f"by onnxruntime on {found.observations} observations: outputs differ by {found.output:.2g} at most, "
            f"{found.actions} actions differ"
        )
    for name, text in lines.items():
        print(f"{name:18}  {text}")


if __name__ == "__main__":
    sys.exit(main())
