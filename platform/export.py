"""Export a run's policy to ONNX.

python -m paddock.export RUN policy.onnx
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddock.envs.errors import ConfigError, install, require

from .config.command import Readers, check_output, parse, read_numbers, run_command, write_output
from .evaluation.choice import choose_policy
from .runs.folder import read_config
from .runs.identity import algorithm_name

READERS: Readers = {
    "which": (str, "last or best"),
    "of": (str, "the name of a policy or of an agent"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
    "cell": (int, "the number of a cell"),
    "near": (read_numbers, "comma-separated descriptors"),
}


@dataclass(frozen=True)
class Export:
    """Exported policy."""

    path: Path
    iteration: int  # of the policy
    inputs: dict[str, str]  # name -> dtype and shape
    outputs: dict[str, str]
    size: int  # bytes


def main() -> int:
    """Run the command `paddock.export`."""
    return run_command("export", _command)


def export(run: Path, path: Path, **options: Any) -> Export:
    """Export the policy that `Run.policy` returns with the same options to ONNX.

    Raises:
        PaddockError: there is no such policy, a package is missing, or the file cannot be written.
    """
    check_output("FILE", path, (".onnx",))
    config = read_config(run)  # check the folder before the packages
    graphs = _import("onnx", "paddock.algos.networks.onnx_graph")
    chosen = choose_policy(run, **options)
    notes = {"environment": chosen.env.id, "algorithm": algorithm_name(config), "iteration": str(chosen.iteration)}
    shape: Any = chosen.layout.space.shape
    model = graphs.build_model(chosen.policy, tuple(shape or ()), np.dtype(chosen.layout.row.base), notes)
    content = model.SerializeToString()
    write_output("FILE", path, content)
    inputs, outputs = (
        {value.name: _describe(value) for value in values} for values in (model.graph.input, model.graph.output)
    )
    return Export(path, chosen.iteration, inputs, outputs, len(content))


def _import(package: str, module: str) -> Any:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"export needs the package {package} ({error}); {install('export')}") from error
    return importlib.import_module(module)


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
    for name, text in lines.items():
        print(f"{name:18}  {text}")


if __name__ == "__main__":
    sys.exit(main())
