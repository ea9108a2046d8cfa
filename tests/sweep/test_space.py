"""Search spaces in Hydra's syntax: what they become, in which order, and what is refused."""

from pathlib import Path

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from paddock.config.overrides import format_run_dir
from paddock.envs.errors import ConfigError
from paddock.sweep.samplers import SAMPLERS, make_sampler
from paddock.sweep.space import Parameter, corners, read_space, suggest


def read(*overrides: str) -> tuple[list[str], list[Parameter]]:
    return read_space(OverridesParser.create().parse_overrides(list(overrides)))


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("interval(0, 1)", FloatDistribution(0, 1)),
        ("tag(log, interval(1e-5, 1e-2))", FloatDistribution(1e-5, 1e-2, log=True)),
        ("int(interval(1, 20))", IntDistribution(1, 20)),
        ("int(tag(log, interval(1, 200)))", IntDistribution(1, 200, log=True)),
        ("tag(log, int(range(1, 9)))", IntDistribution(1, 8, log=True)),
        ("range(32, 257, 32)", IntDistribution(32, 256, step=32)),  # as Hydra has it, without the stop
        ("range(0, 1, 0.25)", FloatDistribution(0, 0.75, step=0.25)),
        ("tanh,relu", CategoricalDistribution(["tanh", "relu"])),
        ("2,0.5,null,true", CategoricalDistribution([2, 0.5, None, True])),
        ("[32],[64,64]", CategoricalDistribution(["[32]", "[64,64]"])),
    ],
)
def test_overrides_become_distributions(text: str, distribution: object) -> None:
    assert read(f"k={text}")[1][0].distribution == distribution


def test_fixed_overrides_are_kept_and_the_last_one_counts() -> None:
    fixed, parameters = read("algo=ppo", "k=interval(0,1)", "~x", "+y.z='a b'", "k=0.5", "seed=1", "seed=2,3")
    assert fixed == ["algo=ppo", "k=0.5", "~x", "+y.z='a b'"]
    assert [parameter.name for parameter in parameters] == ["seed"]


def test_added_key_is_named_without_its_plus() -> None:
    _, parameters = read("kind=hard,soft", "+rate=int(interval(3, 4))")
    assert [parameter.name for parameter in parameters] == ["kind", "rate"]
    assert suggest(optuna.trial.FixedTrial({"kind": "hard", "rate": 3}), parameters) == ["kind=hard", "+rate=3"]


def test_corners_meet_every_bound_and_choice() -> None:
    _, parameters = read("a=interval(1, 2)", "b=x,y,[1,2]", "c=int(interval(5, 9))")
    met = {item for point in corners(parameters) for item in point}
    (between,) = met - {"a=1.0", "a=2.0", "b=x", "b=y", "b=[1,2]", "c=5", "c=9"}
    assert len(met) == 8 and 1 < float(between.removeprefix("a=")) < 2


def test_quoted_choices_are_kept_as_written() -> None:
    _, parameters = read("name='a b','c'")
    assert suggest(optuna.trial.FixedTrial({"name": "'a b'"}), parameters) == ["name='a b'"]


@pytest.mark.parametrize("name", ["a b", "lr=0.1", "schön", "x,y", "e\\'f"])
def test_any_folder_name_survives_the_command_line(name: str) -> None:
    override = OverridesParser.create().parse_override(format_run_dir(Path("/runs") / name))
    assert (override.key_or_group, override.value()) == ("run.dir", f"/runs/{name}")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["k=tag(lg, interval(1, 2))"], "the only tag is log; got lg"),
        (["k=int(tag(log, range(1, 9)))"], "Hydra ignores nested tags; write a single"),
        (["k=interval(2, 1)"], "2.0 to 1.0 is not an interval"),
        (["k=tag(log, interval(0, 1))"], "`low > 0` must hold"),
        (["k=tag(log, choice(1, 2))"], "log does not apply to choices"),
        (["k=range(5, 5)"], "the range is empty"),
        (["k=2,1,1.0"], "1 and 1.0 are equal"),
    ],
)
def test_wrong_space_is_refused_in_a_line(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*overrides)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_sampler_repeats_a_failed_draw(name: str) -> None:
    drawn = set()
    study = optuna.create_study()
    for number in range(4):
        study.sampler = make_sampler(name, {}, 7, number)
        trial = study.ask()
        drawn.add(trial.suggest_float("x", 0, 1))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert len(drawn) == 4
