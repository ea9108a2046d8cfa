"""A run that begins with another run's policy: what is taken, what is not, and that it stays the same run."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import final_state
from learned import algorithm

import paddock
from paddock.algos.networks.initial import InitialPolicy
from paddock.envs.errors import ConfigError
from paddock.reports.data import gather
from paddock.reports.sections.runs import list_runs
from paddock.rerun import rerun

CARTPOLE = ["env=cartpole", "algo.hidden_sizes=[8,6]"]
PENDULUM = ["env=pendulum", "algo.hidden_sizes=[8,6]"]
PLAIN, SCALED = (f"algo.normalize_observations={value}" for value in ("false", "true"))
TANH, SQUASHED = "algo.activation=tanh", "algo.continuous_distribution=squashed_gaussian"

# From whom, to whom; both on the same environment.
PAIRS = {
    "es ppo": (CARTPOLE, ["algo=es", PLAIN], ["algo=ppo"]),
    "es ppo, normalized": (CARTPOLE, ["algo=es"], ["algo=ppo", SCALED, "algo.observation_clip=5"]),
    "ppo es, normalized": (CARTPOLE, ["algo=ppo", SCALED], ["algo=es", "algo.observation_clip=10"]),
    "dqn ppo": (CARTPOLE, ["algo=dqn"], ["algo=ppo", "algo.activation=relu"]),
    "dqn dueling": (CARTPOLE, ["algo=dqn"], ["algo=dqn", "algo.dueling=true"]),
    "dqn noisy": (CARTPOLE, ["algo=dqn"], ["algo=dqn", "algo.noisy_sigma=0.5"]),
    "dqn atoms": (CARTPOLE, ["algo=dqn", "algo.atoms=5"], ["algo=dqn", "algo.atoms=5"]),
    "ppo lstm": (CARTPOLE, ["algo=ppo", "algo.lstm=true"], ["algo=ppo", "algo.lstm=true"]),
    "ppo es, lstm": (
        CARTPOLE,
        ["algo=ppo", "algo.lstm=true", "algo.shared=true"],
        ["algo=es", PLAIN, "algo.lstm=true"],
    ),
    "es ppo, lstm": (
        CARTPOLE,
        ["algo=es", PLAIN, "algo.lstm=true"],
        ["algo=ppo", "algo.lstm=true", "algo.shared=true"],
    ),
    "es ppo, numbers": (PENDULUM, ["algo=es", PLAIN], ["algo=ppo", SQUASHED]),
    "es sac": (PENDULUM, ["algo=es", PLAIN, "algo.activation=relu"], ["algo=sac"]),
    "ppo sac in torch": (PENDULUM, ["algo=ppo", SQUASHED, TANH], ["algo=sac", TANH, "algo.backend=torch"]),
    "td3 es": (PENDULUM, ["algo=td3", TANH], ["algo=es", PLAIN]),
    "ppo pbt": (
        CARTPOLE,
        ["algo=ppo"],
        ["algo=pbt", "algo.members=2", "algo.member.hidden_sizes=[8,6]", "~algo.hidden_sizes"],
    ),
}


def build(*words: str) -> Any:
    named = [word[1:] for word in words if word.startswith("~")]
    kept = [word for word in words if word.partition("=")[0] not in named and not word.startswith("~")]
    return algorithm(*kept)


def learned(*words: str) -> Any:
    """An algorithm whose policy is not one that its like begin with, and which has seen observations."""
    algo, generator = build(*words, "seed=7"), np.random.default_rng(1)
    for name in ("observed", "normalization"):
        seen = getattr(algo, name, None)
        part = getattr(seen, "seen", seen)
        if part is not None and part.mean.size:
            part.mean[:], part.m2[:] = generator.normal(size=(2, part.mean.size)) ** 2
            object.__setattr__(part, "count", 50)
    return algo


def restored(initial: InitialPolicy) -> InitialPolicy:
    return InitialPolicy.restore(initial.state_dict())


@pytest.mark.parametrize("pair", PAIRS)
def test_what_begins_with_a_policy_acts_as_it_does(pair: str) -> None:
    common, *both = PAIRS[pair]
    source, target = learned(*both[0], *common), build(*both[1], *common)
    before = target.policy()
    target.start_from(restored(source.initial_policy()))
    obs = np.random.default_rng(2).normal(size=(20, *source.env.spaces[0].shape)).astype(np.float32)
    policies = source.policy(), target.policy(), before
    wanted, found, drawn = (policy.outputs(obs)[0] for policy in policies)
    if common is PENDULUM:
        wanted, found, drawn = (policy.act(obs)[0] for policy in policies)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert not np.allclose(drawn, wanted, atol=1e-3)


def test_initial_policies_leave_critics_and_reset_targets() -> None:
    ppo = build("algo=ppo", *CARTPOLE)
    before, P = ppo.learner.parameters(), (4 + 1) * 8 + (8 + 1) * 6 + (6 + 1) * 2
    ppo.start_from(learned("algo=es", PLAIN, *CARTPOLE).initial_policy())
    after = ppo.learner.parameters()
    np.testing.assert_array_equal(after[P:], before[P:])
    assert (after[:P] != before[:P]).any()
    assert ppo.actors.newest[0].parameters.tobytes() == after.tobytes()
    td3, source = build("algo=td3", *PENDULUM), learned("algo=sac", *PENDULUM)
    drawn = td3.learner.state_dict()
    td3.start_from(source.initial_policy())
    now = td3.learner.state_dict()
    np.testing.assert_array_equal(now["target_actor"], now["actor_parameters"])
    assert (now["actor_parameters"] != drawn["actor_parameters"]).any()
    for name in ("critics_parameters", "target_critics", "actor_momentum"):
        np.testing.assert_array_equal(now[name], drawn[name])
    dqn = build("algo=dqn", *CARTPOLE, "algo.dueling=true")
    drawn = dqn.learner.state_dict()
    dqn.start_from(learned("algo=dqn", *CARTPOLE).initial_policy())
    now = dqn.learner.state_dict()
    np.testing.assert_array_equal(now["targets"], now["parameters"])
    assert (now["parameters"] != drawn["parameters"]).sum() == P  # the value of the state is not among them


def test_a_population_takes_it_in_every_member_and_poet_in_its_first_niche() -> None:
    source = learned("algo=es", PLAIN, "env=terrain", "algo.hidden_sizes=[4]")
    poet = build("algo=poet", "env=terrains", "algo.hidden_sizes=[4]")
    poet.start_from(source.initial_policy())
    poet._create_first_niche()
    np.testing.assert_array_equal(poet.policy().parameters, source.policy().parameters)
    again = build("algo=poet", "env=terrains", "algo.hidden_sizes=[4]")
    again.start_from(poet.initial_policy())
    again._create_first_niche()
    np.testing.assert_array_equal(again.policy().parameters, source.policy().parameters)
    ppo = learned("algo=ppo", "env=cartpole", "algo.hidden_sizes=[8]")
    pbt = build("algo=pbt", "env=cartpole", "algo.members=3", "algo.member.hidden_sizes=[8]")
    pbt.start_from(ppo.initial_policy())
    P, flat = (4 + 1) * 8 + (8 + 1) * 2, ppo.learner.parameters()
    for member in pbt.population:
        np.testing.assert_array_equal(member.state["learner"]["parameters"][:P], flat[:P])
    np.testing.assert_array_equal(pbt.initial_policy().body, ppo.initial_policy().body)


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (["algo=ppo", *CARTPOLE], ["algo=ppo", "env=pendulum"], r"its observations: float32 \[4\], .* float32 \[3\]"),
        (
            ["algo=ppo", *CARTPOLE],
            ["algo=ppo", "env=cartpole"],
            r"its hidden_sizes: \[8,6\], .*; set algo.hidden_sizes to",
        ),
        (["algo=es", *CARTPOLE], ["algo=ppo", *CARTPOLE], "observation_clip: 5.0, this run's: none; set algo.normal"),
        (["algo=ppo", *PENDULUM], ["algo=es", *PENDULUM, PLAIN], "numbers: gaussian, this run's: squashed_gaussian"),
        (["algo=a2c", *CARTPOLE], ["algo=dqn", *CARTPOLE, TANH], "not action values, .*; choose a run of algo=dqn"),
        (["algo=dqn", *CARTPOLE], ["algo=dqn", *CARTPOLE, "algo.quantiles=5"], "set algo.quantiles=null"),
        (["algo=dqn", *CARTPOLE], ["algo=pqn", *CARTPOLE], "layer_norm: false, this run's: true; set algo.layer_norm"),
        (["algo=ppo", *CARTPOLE], ["algo=ppo", *CARTPOLE, "env=minigrid_empty"], r"at \['image'\]; set env to"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_first_difference(
    source: list[str], target: list[str], said: str
) -> None:
    initial = learned(*source).initial_policy()
    with pytest.raises(ConfigError, match=said) as caught:
        build(*target).start_from(initial)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_only_raw_or_normalized_bytes_are_exported() -> None:
    common = ["env=gymnasium", "env.id=toy_envs:Scenes-v0", "algo.hidden_sizes=[8,6]"]
    flat = "algo.encoder=mlp"
    kinds = {"es": ["algo=es", flat, PLAIN], "ppo": ["algo=ppo", flat], "dqn": ["algo=dqn", TANH, flat]}
    known = {name: learned(*words, *common).initial_policy() for name, words in kinds.items()}
    for source, target in (("es", "ppo"), ("dqn", "es")):
        with pytest.raises(
            ConfigError, match=r"bytes: divided by \d+, this run's: divided by \d+; set algo.normalize_observations"
        ):
            build(*kinds[target], *common).start_from(known[source])
    obs = np.random.default_rng(2).integers(0, 256, (20, 44, 40, 3), np.uint8)
    scaled = {"es": ["algo=es", flat], "ppo": ["algo=ppo", flat, SCALED, "algo.observation_clip=5"]}
    for one, other in (("es", "es"), ("dqn", "ppo"), ("scaled es", "scaled ppo")):
        words = scaled if one.startswith("scaled") else kinds
        source, target = (name.removeprefix("scaled ") for name in (one, other))
        begun, begins = learned(*words[source], *common), build(*words[target], *common)
        begins.start_from(begun.initial_policy())
        wanted, found = (algo.policy().outputs(obs)[0] for algo in (begun, begins))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# The run


def words(run: Path, iterations: int, *more: str) -> list[str]:
    small = [
        "compute=serial",
        "checkpoint.every_s=0",
        "vec.num_envs=2",
        "algo.eval_episodes=2",
        "algo.hidden_sizes=[8]",
    ]
    return [*small, *more, f"budget.iterations={iterations}", f"run.dir={run}"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("initial") / "es"
    es = ["algo=es", "env=cartpole", "algo.population=4", PLAIN, "env.max_episode_steps=20"]
    paddock.run(*words(run, 2, *es), progress=False)
    return run


PPO = ["algo=ppo", "env=cartpole", "algo.num_steps=16", "algo.minibatch_size=16"]


def test_a_run_keeps_the_policy_it_began_with(source: Path, tmp_path: Path) -> None:
    theirs = shutil.copytree(source, tmp_path / "theirs")
    run, cut = tmp_path / "run", tmp_path / "cut"
    began = paddock.run(*words(run, 4, *PPO, f"init_from={theirs}"), progress=False)
    paddock.run(*words(cut, 2, *PPO, f"init_from={theirs}"), progress=False)
    told = json.loads((run / "provenance.json").read_text())["init_from"]
    assert (told["run"], told["algorithm"], told["environment"]) == (str(theirs), "es", "CartPole-v1")
    assert told["iteration"] == 2 and told["step"] > 0
    shutil.rmtree(theirs)
    paddock.run(*words(cut, 4, *PPO, f"init_from={theirs}"), progress=False)
    assert final_state(cut) == final_state(run)
    assert (cut / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    other = paddock.run(*words(tmp_path / "other", 4, *PPO), progress=False)
    assert other.metrics().to_dicts() != began.metrics().to_dicts()
    assert rerun(run, tmp_path / "again", 4) is None
    (_, origin) = list_runs(gather([run]).entries, "eval/return_mean", tmp_path).blocks
    assert "/theirs at iteration 2 (" in str(origin) and "steps of es on CartPole-v1)" in str(origin)
    # Killed before its first checkpoint: it begins again, with what it began with.
    shutil.rmtree(cut / "checkpoints")
    for name in ("metrics.jsonl", "system.jsonl", "done.json"):
        (cut / name).unlink()
    paddock.run(*words(cut, 4, *PPO, f"init_from={theirs}"), progress=False)
    assert final_state(cut) == final_state(run)


def test_a_policy_that_does_not_fit_is_one_line_and_leaves_no_trace(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for more, said in (
        ([f"init_from={source}", "algo.hidden_sizes=[5]"], rf"init_from={source}: its hidden_sizes: \[8\]"),
        ([f"init_from={tmp_path}"], f"init_from: {tmp_path} is not a run folder"),
        (["init_from=3"], "init_from=3 must be a string or null"),
    ):
        for dry in ("true", "false"):
            with pytest.raises(ConfigError, match=said):
                paddock.run(*words(run, 2, *PPO, *more, f"dry_run={dry}"), progress=False)
    assert not run.exists()
