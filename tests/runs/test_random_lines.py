"""Settings that nobody chose: killed twice and gone on elsewhere, a run has the bytes of one that was left alone."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import Command, call_main, rows

Options = Mapping[str, Sequence[object]]

LINES = 40  # of which some are refused, and say why
EXACT = ("bipedal", "terrain", "minigrid_empty", "tictactoe")  # vec=native has their numbers
SANITY = (f"sanity env.id=paddock.envs.sanity:paddock/{name}-v0" for name in ("Masked", "Forget", "Delay", "Copy"))
CHOICES: Sequence[str] = ("cartpole", "lunarlander", "recall", "relay", "roles", "snake", *EXACT[2:], *SANITY)
NUMBERS: Sequence[str] = ("pendulum", "mountaincar_continuous", *EXACT[:2])

EVALUATED: Options = {"eval_episodes": [2], "eval_max_steps": [40]}
PLAYED: Options = {
    **EVALUATED,
    "rollouts": ["inline", "inline", "prefetch", "threads", "actors"],
    "staleness": [1, 2, 3],
    "num_actors": [1, 2],
    "groups": [1, 1, 2],
    "hidden_sizes": ["[8]", "[6,5]"],
}
OFTEN: Options = {"eval_every_iterations": [1, 2, 50]}
REPLAYED: Options = {
    **PLAYED,
    "num_steps": [1, 2, 4],
    "buffer_size": [400, 1000, 100_000],
    "batch_size": [4, 16],
    "learning_starts": [64, 100],
    "updates_per_step": [0.13, 0.5, 1.5],
    "n_step": [1, 3],
    "log_every_steps": [32, 50],
    "eval_every_steps": [64, 100],
    "learning_rate_schedule": ["constant", "linear"],
}
VALUES: Options = {
    "priority_exponent": [0, 0.6],
    "importance_updates": [0, 50],
    "epsilon_steps": [100],
    "epsilon_ladder": ["false", "true"],
    "target_every": [1, 7],
    "huber": ["null", 1],
}
ALGORITHMS: Mapping[str, tuple[Sequence[str], Options]] = {  # what it learns, and its keys with what each may be
    "es": (
        (*CHOICES, *NUMBERS),
        {**EVALUATED, **OFTEN}
        | {"population": [4, 10], "hidden_sizes": ["[]", "[8]"], "episodes_per_member": [1, 3], "episode_cap": [17, 40]}
        | {"observation_sampling": [0.1, 0.5]},
    ),
    "ppo": (
        (*CHOICES, *NUMBERS),
        {**PLAYED, **OFTEN}
        | {"num_steps": [4, 8], "minibatch_size": [8, 16], "epochs": [1, 2], "lstm": ["false", "false", "true"]}
        | {"normalize_observations": ["false", "true"], "normalize_rewards": ["false", "true"]}
        | {"shared": ["false", "true"], "target_kl": ["null", 0.001], "value_clip_coef": ["null", 0.2]}
        | {
            "advantage": ["gae", "vtrace"],
            "bootstrap_truncated": ["true", "false"],
            "learning_rate_schedule": ["constant", "linear"],
        },
    ),
    "a2c": ((*CHOICES, *NUMBERS), {**EVALUATED, **OFTEN, "rollouts": ["inline", "threads", "actors"]}),
    "dqn": (
        CHOICES,
        {**REPLAYED, **VALUES}
        | {"dueling": ["false", "true"], "quantiles": ["null", "null", 5], "noisy_sigma": ["null", "null", 0.5]},
    ),
    "r2d2": (CHOICES, {**REPLAYED, **VALUES, "num_steps": [2, 4], "sequence_length": [4, 8], "burn_in": [0, 3]}),
    "sac": ((*CHOICES, *NUMBERS), {**REPLAYED, "learn_alpha": ["true", "false"], "target_every": [1, 3]}),
    "td3": (NUMBERS, {**REPLAYED, "actor_every": [2, 3]}),
    "poet": (
        ("poles",),
        {**EVALUATED, "population": [4], "hidden_sizes": ["[4]"], "episode_cap": [40]}
        | {"transfer_every": [1, 2], "reproduce_every": [1, 2], "reproduce_score": [5], "criterion_low": [1]}
        | {"max_niches": [2, 4], "max_children": [3], "novelty": ["encoding", "pata_ec"]},
    ),
}


def draw(chance: random.Random) -> tuple[list[str], list[str]]:
    """A line, and further words for it that change no number."""
    algo = chance.choice(list(ALGORITHMS))
    envs, options = ALGORITHMS[algo]
    env = chance.choice(envs)
    words = [f"algo={algo}", *f"env={env}".split(), f"seed={chance.choice([0, 7, 2**40])}"]
    words += [f"algo.{key}={chance.choice(values)}" for key, values in options.items()]
    words += [f"vec.num_envs={chance.choice([2, 4])}"]
    words += [chance.choice(["budget.iterations=6", "budget.iterations=9"])] if algo in ("es", "poet") else []
    words += [f"budget.steps={chance.choice([300, 411])}"] if "log_every_steps" in options else ["budget.iterations=7"]
    words += ["budget.steps=300"] if algo == "ppo" else []
    if algo != "poet" and chance.random() < 0.4:
        words.append(f"env.max_episode_steps={chance.choice([5, 23])}")
    vecs = ["multiprocess", "auto", "serial", *["native", "native vec.threads=2"] * (env in EXACT)]
    elsewhere = [*f"vec={chance.choice(vecs)}".split(), f"compute.workers={chance.choice([1, 2])}"]
    return words, elsewhere


@pytest.mark.nightly
@pytest.mark.parametrize("line", range(LINES))
def test_random_line_has_the_same_bytes_anywhere(
    line: int, tmp_path: Path, start: Callable[..., Command], capfd: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(line)
    words, elsewhere = draw(chance)
    alone, moved = tmp_path / "alone", tmp_path / "moved"
    code = call_main(*words, "vec=serial", "compute=serial", f"run.dir={alone}")
    if code == 2:
        pytest.skip(capfd.readouterr().err.strip())
    assert code == 0, capfd.readouterr().err
    again = [*words, *elsewhere, "compute=local", f"run.dir={moved}", "checkpoint.every_s=0"]
    for _ in range(2):
        command = start(*again)
        command.wait_for(moved, len(rows(moved)) + chance.randint(1, 3))
        if command.process.poll() is None:
            command.kill()
    code, _, err = start(*again).wait()
    assert code == 0, err
    for journal in ("metrics.jsonl", "events.jsonl"):
        written = [(run / journal).read_bytes() if (run / journal).exists() else b"" for run in (alone, moved)]
        assert written[0] == written[1], " ".join([*words, *elsewhere])
