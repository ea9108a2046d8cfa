"""Export a run's policy to ONNX, and check the file against the policy.

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

from .config.command import Readers, check_output, parse, read_numbers, run_command, write_output
from .evaluation.elites import find_elite
from .evaluation.load import load
from .evaluation.policy import find_member
from .evaluation.target import find_env, find_policy, find_target
from .runs.folder import read_config

READERS: Readers = {
    "which": (str, "last or best"),
    "of": (str, "the name of a policy or of an agent"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
    "cell": (int, "the number of a cell"),
    "near": (read_numbers, "comma-separated descriptors"),
}
COMPARED = 256  # observations
TOLERANCE = 1e-3  # relative to the largest output or 1; single precision, summed in another order


class ExportFailed(PaddockError):
    """The exported file differs from the policy."""


@dataclass(frozen=True)
class Comparison:
    """Differences between the file and the policy on observations of the environment."""

    observations: int
    output: float  # largest difference of outputs
    actions: int  # number of different actions; continuous ones within the tolerance count as equal


@dataclass(frozen=True)
class Export:
    """Exported policy."""

    path: Path
    iteration: int  # of the policy
    inputs: dict[str, str]  # name -> dtype and shape
    outputs: dict[str, str]
    size: int  # bytes
    comparison: Comparison | None  # None without onnxruntime


def main() -> int:
    """Run the command `paddock.export`."""
    return run_command("export", _command)


def export(
    run: Path,
    path: Path,
    *,
    which: str = "last",
    of: str | None = None,
    niche: int | None = None,
    agent: int | None = None,
    cell: int | None = None,
    near: Sequence[float] | None = None,
) -> Export:
    """Export the policy of a run's newest checkpoint to ONNX.

    The arguments are those of `python -m paddock.export`; the run's folder is only read.

    Raises:
        ExportFailed: the exported policy acts differently; no file is written.
        PaddockError: there is no such policy, a package is missing, or the file cannot be written.
    """
    check_output("FILE", path, (".onnx",))
    read_config(run)  # check the folder before the packages
    graphs = _import("onnx", "paddock.algos.networks.onnx_graph")
    algorithm, progress = load(run)
    target = find_target(algorithm, run, niche, agent)
    policy, iteration = find_policy(algorithm, run, which, target, progress, find_elite(algorithm, run, cell, near))
    spec = find_env(algorithm, run, target)
    notes = {"environment": spec.id, "algorithm": type(algorithm).__name__, "iteration": str(iteration)}
    member, layout, _ = find_member(policy, spec, of)
    shape: Any = layout.space.shape
    model = graphs.build_model(member, tuple(shape or ()), np.dtype(layout.row.base), notes)
    content = model.SerializeToString()
    compared = _compare(content, policy, spec, of)
    write_output("FILE", path, content)
    inputs, outputs = (
        {value.name: _describe(value) for value in values} for values in (model.graph.input, model.graph.output)
    )
    return Export(path, iteration, inputs, outputs, len(content), compared)


def _import(package: str, module: str) -> Any:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"export needs the package {package} ({error}); {install('export')}") from error
    return importlib.import_module(module)


def _compare(content: bytes, policy: Any, spec: EnvSpec, of: str | None = None) -> Comparison | None:
    try:
        runtime = _import("onnxruntime", "onnxruntime")
    except ConfigError:
        return None
    member, _, space = find_member(policy, spec, of)
    obs, states, output, action = _visit(policy, member, spec)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given: dict[str, Any] = member.inputs.feed(obs)
    if len(session.get_inputs()) > len(given):
        given["state"] = states
    theirs, *their_actions = session.run(["output", *member.inputs.action_names], given)
    difference = float(np.abs(theirs - output).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(output).max()))
    differ = np.zeros(len(obs), np.bool_)
    for ours, their in zip(_leaves(action, spec, space), their_actions, strict=True):
        rows = np.abs(their.astype(np.float64) - ours).reshape(len(obs), -1).max(axis=1)
        differ |= rows > (0 if np.issubdtype(ours.dtype, np.integer) else allowed)
    differing = int(differ.sum())
    what = f"outputs differ by {difference:.2g} on {len(obs)} observations, and {differing} actions differ"
    # Rounding may decide a few ties.
    if not difference <= allowed or differing > len(obs) // 50:
        raise ExportFailed(f"{what}; the file was not written, please report this")
    return Comparison(len(obs), difference, differing)


def _leaves(actions: NDArray[Any], spec: EnvSpec, space: Any) -> list[NDArray[Any]]:
    """Split actions into arrays [B, ...], one per leaf of their space."""
    return [actions] if actions.dtype.kind != "V" else list(flatten(spec.lay_out_actions(space).fields(actions)))


class _Recorder:
    """Policy that records its observations, recurrent states, outputs and actions."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.steps: list[tuple[NDArray[Any], ...]] = []

    def act(self, obs: NDArray[Any], state: Any = None) -> tuple[NDArray[Any], dict[str, NDArray[Any]], Any]:
        output, after = self.policy.outputs(obs, state)
        acted = self.policy.act(obs, state)
        self.steps.append((obs.copy(), _memory(state, after), output, acted[0]))
        return acted


def _visit(policy: Any, member: Any, spec: EnvSpec) -> list[NDArray[Any]]:
    """Play fresh episodes of a policy; return the observations, states, outputs and actions of one member."""
    recorder = _Recorder(member)
    policies = [policy.plays(seat) if isinstance(policy, JointPolicy) else member for seat in range(spec.seats)]
    acts = any(one is member for one in policies)  # otherwise a league member, which then acts for all
    recorded = [recorder if one is member or not acts else one for one in policies]
    playing = recorder if spec.seats == 1 else JointPolicy(spec, recorded, range(spec.seats))
    recorder.steps.clear()  # recorded while building the policy
    episode = 0
    while len(recorder.steps) < COMPARED:
        seed, episode = episode_seed(0, Stream.FRESH, 0, episode), episode + 1
        evaluate_policy(EvaluationSpec(spec, playing, COMPARED, stochastic=False), [seed])
    return [np.concatenate(column) for column in zip(*recorder.steps[:COMPARED], strict=True)]


def _memory(before: Any, after: Any) -> NDArray[Any]:
    """Return the recurrent state before a step, zeros at first; [1, 0] without a state."""
    if before is not None:
        return np.asarray(before)
    return np.zeros((1, 0)) if after is None else np.zeros_like(after)


def _describe(value: Any) -> str:
    tensor = value.type.tensor_type
    shape = ", ".join(dimension.dim_param or str(dimension.dim_value) for dimension in tensor.shape.dim)
    helper = importlib.import_module("onnx.helper")
    return f"{helper.tensor_dtype_to_np_dtype(tensor.elem_type)} [{shape}]"


def _command(arguments: Sequence[str]) -> None:
    paths, options = parse("export", arguments, READERS)
    usage = "python -m paddock.export RUN FILE.onnx"
    require(len(paths) == 2, f"export takes a run and a file; usage: {usage}")
    made = export(*paths, **options)
    lines = {
        "run": f"{paths[0]}, {options.get('which', 'last')} policy, of iteration {made.iteration:,}",
        **{f"input {name}": text for name, text in made.inputs.items()},
        **{f"output {name}": text for name, text in made.outputs.items()},
        "file": f"{made.path}, {made.size:,} bytes",
    }
    if made.comparison is None:
        lines["check"] = f"skipped; to compare it with the policy, {install('export')}"
    else:
        found = made.comparison
        lines["check"] = (
            f"by onnxruntime on {found.observations} observations: outputs differ by at most {found.output:.2g}, "
            f"{found.actions} actions differ"
        )
    for name, text in lines.items():
        print(f"{name:18}  {text}")


if __name__ == "__main__":
    sys.exit(main())
