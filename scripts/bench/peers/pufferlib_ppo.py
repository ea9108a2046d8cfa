"""PufferLib 3's trainer on a Gymnasium environment, with the network of 2 x 64 units that all contenders use.

It runs under an interpreter with PufferLib (`scripts/bench/learn.py --pufferlib PYTHON`), reads requests as JSON lines
and answers with steps and seconds. A setting lists environments, worker processes (0: this process) and optionally torch
threads. Everything else is PufferLib's default, except the optimizer, since Muon needs another package.

The environment OWN is PufferLib's CartPole in C, with PufferLib's network of one layer of 128. Wheels of pufferlib-core
lack it, so it is compiled from the recipe's "source", the unpacked source distribution of pufferlib 3.0.0.
"""

import contextlib
import functools
import importlib.util
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

if importlib.util.find_spec("pyro") is None:
    # Only hyperparameter sweeps need Pyro.
    sys.modules["pufferlib.sweep"] = types.ModuleType("pufferlib.sweep")

import pufferlib
import pufferlib.emulation
import pufferlib.models
import pufferlib.pufferl
import pufferlib.pufferlib
import pufferlib.pytorch
import pufferlib.vector
from torch import Tensor, nn
from torch.utils import cpp_extension

OWN = "puffer_cartpole"
TRAINER = {
    "seed": 1,
    "torch_deterministic": True,
    "cpu_offload": False,
    "device": "cpu",
    "optimizer": "adam",
    "precision": "float32",
    "compile": False,
    "use_rnn": False,
    "learning_rate": 0.015,
    "anneal_lr": True,
    "adam_beta1": 0.95,
    "adam_beta2": 0.999,
    "adam_eps": 1e-12,
    "gamma": 0.995,
    "gae_lambda": 0.90,
    "clip_coef": 0.2,
    "vf_coef": 2.0,
    "vf_clip_coef": 0.2,
    "max_grad_norm": 1.5,
    "ent_coef": 0.001,
    "vtrace_rho_clip": 1.0,
    "vtrace_c_clip": 1.0,
    "prio_alpha": 0.8,
    "prio_beta0": 0.2,
    "total_timesteps": 10_000_000,
    "checkpoint_interval": 1_000_000,
    "batch_size": "auto",
    "env": "CartPole-v1",
}


class Agent(nn.Module):
    """Policy and value networks with two layers of 64 each."""

    def __init__(self, env: Any) -> None:
        """Create the layers."""
        super().__init__()
        init = pufferlib.pytorch.layer_init
        self.dtype = None
        space, actions = env.single_observation_space, int(env.single_action_space.n)
        inputs = int(np.prod(space.shape))
        if isinstance(env.env.observation_space, gymnasium.spaces.Dict):
            self.space = env.env.observation_space
            self.dtype = pufferlib.pytorch.nativize_dtype(env.emulated)
            inputs = gymnasium.spaces.utils.flatdim(self.space)
        self.actor, self.critic = (
            nn.Sequential(
                init(nn.Linear(inputs, 64)),
                nn.Tanh(),
                init(nn.Linear(64, 64)),
                nn.Tanh(),
                init(nn.Linear(64, width), gain),
            )
            for width, gain in ((actions, 0.01), (1, 1.0))
        )

    def forward(self, obs: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """Return logits [B, A] and values [B, 1]."""
        numbers = obs if self.dtype is None else self.flatten(obs)
        return self.actor(numbers), self.critic(numbers)

    forward_eval = forward

    def flatten(self, obs: Tensor) -> Tensor:
        """Flatten structured observations to [B, F]: pixels in [0, 1], discrete values one-hot."""
        leaves = pufferlib.pytorch.nativize_tensor(obs, self.dtype)
        columns = []
        for name, space in self.space.items():
            leaf = leaves[name]
            if isinstance(space, gymnasium.spaces.Discrete):
                columns.append(nn.functional.one_hot(leaf.long().flatten(), int(space.n)).float())
            else:
                columns.append(leaf.flatten(1).float() / (255 if space.dtype == np.uint8 else 1))
        return torch.cat(columns, 1)


def make_env(name: str, buf: Any = None, seed: int = 0) -> Any:
    """Wrap a Gymnasium environment as PufferLib does."""
    env = pufferlib.pufferlib.EpisodeStats(gymnasium.make(name))
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf)


def find_cartpole(source: str | None) -> Any:
    """Return PufferLib's CartPole in C, installed or compiled from the source distribution; ImportError without both."""
    if importlib.util.find_spec("pufferlib.ocean") is None:
        if source is None:
            raise ImportError("this PufferLib has no environments in C; pass its sources: --pufferlib-source FOLDER")
        pufferlib.__path__.append(str(compile_cartpole(Path(source)) / "pufferlib"))
    return importlib.import_module("pufferlib.ocean.cartpole.cartpole").Cartpole


def compile_cartpole(source: Path) -> Path:
    """Compile the binding as PufferLib's setup.py does, and return the folder that holds pufferlib/ocean/cartpole."""
    folder = Path(tempfile.mkdtemp(prefix="pufferlib_cartpole_"))
    package, graphics = folder / "pufferlib" / "ocean" / "cartpole", source / "raylib-5.5_linux_amd64"
    package.mkdir(parents=True)
    given = source / "pufferlib" / "ocean" / "cartpole"
    (package / "cartpole.py").write_text((given / "cartpole.py").read_text())
    include = [f"-I{path}" for path in (graphics / "include", sysconfig.get_paths()["include"], np.get_include())]
    command = ["cc", "-O2", "-w", "-shared", "-fPIC", "-DPLATFORM_DESKTOP", *include, str(given / "binding.c")]
    library = str(graphics / "lib" / "libraylib.a")
    target = str(package / f"binding{sysconfig.get_config_var('EXT_SUFFIX')}")
    subprocess.run([*command, library, "-lm", "-Wl,-Bsymbolic-functions", "-o", target], check=True)
    return folder


def make_envs(recipe: dict[str, Any], num_envs: int, workers: int) -> Any:
    """Create the environments, in this process or in workers."""
    backend = pufferlib.vector.Multiprocessing if workers else pufferlib.vector.Serial
    if recipe["env"] != OWN:
        more = {"num_workers": workers} if workers else {}
        creator = functools.partial(make_env, recipe["env"])
        return pufferlib.vector.make(creator, backend=backend, num_envs=num_envs, **more)
    cartpole = find_cartpole(recipe["source"])
    if workers == 0:
        own = {"num_envs": num_envs, "report_interval": 128}
        return pufferlib.vector.make(cartpole, backend=pufferlib.vector.PufferEnv, env_kwargs=own)
    each = {"num_envs": num_envs // workers, "report_interval": 128}
    return pufferlib.vector.make(cartpole, backend=backend, num_envs=workers, num_workers=workers, env_kwargs=each)


def train(recipe: dict[str, Any], setting: list[int], updates: int, seed: int) -> dict[str, Any]:
    """Measure `updates` after one update to warm up."""
    num_envs, workers, *threads = setting
    horizon = recipe["num_steps"]
    minibatch_size = min(recipe["minibatch_size"], num_envs * horizon)
    torch.set_num_threads(*threads or [1])
    torch.manual_seed(seed)
    envs = make_envs(recipe, num_envs, workers)
    agent = pufferlib.models.Default(envs.driver_env) if recipe["env"] == OWN else Agent(envs.driver_env)
    settings = {
        **TRAINER,
        "bptt_horizon": horizon,
        "minibatch_size": minibatch_size,
        "max_minibatch_size": minibatch_size,
        "update_epochs": recipe["epochs"],
        "data_dir": tempfile.gettempdir(),
    }
    trainer = pufferlib.pufferl.PuffeRL(settings, envs, agent)
    trainer.print_dashboard = lambda *args, **kwargs: None
    started, first = 0.0, 0
    try:
        for update in range(updates + 1):
            if update == 1:
                started, first = time.perf_counter(), trainer.global_step
            trainer.evaluate()
            trainer.train()
        return {"steps": trainer.global_step - first, "seconds": time.perf_counter() - started}
    finally:
        envs.close()
        trainer.utilization.stop()


def compile_advantage() -> None:
    """Compile PufferLib's C++ code for the CPU if its wheel needs CUDA's libraries; half a minute, once."""
    if not getattr(pufferlib.pufferl, "_C_AVAILABLE", True):
        source = Path(pufferlib.__path__[0]) / "extensions" / "pufferlib.cpp"
        cpp_extension.load("pufferlib_cpu", [str(source)], extra_cflags=["-O3"], is_python_module=False)
        pufferlib.pufferl._C_AVAILABLE = True


if __name__ == "__main__":
    answers = sys.stdout
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):  # its dashboard
            compile_advantage()
            answer = train(**json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)
