"""Metrics of complete episodes: evaluation results, environment metrics, and truncated episodes."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episodes import Episodes
from paddock.algos.multiagent.evaluation import team_metrics
from paddock.envs.spec import EnvSpec

log = logging.getLogger(__name__)


def cut_off(lengths: NDArray[Any], max_steps: int, env: EnvSpec) -> int:
    """Return the number of episodes truncated at `max_steps` rather than by the environment's own time limit."""
    capped = int((lengths >= max_steps).sum())
    return 0 if capped and env.made.limit is not None and env.made.limit <= max_steps else capped


def count_cut(lengths: NDArray[Any], max_steps: int, env: EnvSpec) -> int:
    """Return the number of evaluation episodes truncated at `max_steps`; log a warning if there are any."""
    cut = cut_off(lengths, max_steps, env)
    if cut:
        message = "%d of %d evaluation episodes were truncated after %d steps, so their returns are partial; %s"
        endless = cut == len(lengths) and env.made.limit is None
        fix = "increase algo.eval_max_steps=" + ", or set env.max_episode_steps= if episodes never end" * endless
        log.warning(message, cut, len(lengths), max_steps, fix)
    return cut


def format_evaluation(env: EnvSpec, iteration: int, episodes: int, max_steps: int) -> str:
    """Describe a pending evaluation, and how to shorten it if the environment has no time limit."""
    steps = min(max_steps, env.made.limit or max_steps)
    text = f"the evaluation of iteration {iteration}, {episodes} episodes of up to {steps:,} steps"
    fix = "to shorten it, reduce algo.eval_max_steps=, or set env.max_episode_steps= for all episodes"
    return text if env.made.limit is not None else f"{text}; {fix}"


def cut_metric(cut: int) -> dict[str, float]:
    """Return the metric `eval/cut`, or an empty dict if no episode was truncated."""
    return {"eval/cut": cut} if cut else {}


def mean_env_metrics(group: str, names: Sequence[str], values: NDArray[np.float64]) -> dict[str, float]:
    """Return the means of environment metrics [..., M] as `group/NAME_mean`, ignoring NaN."""
    columns = {name: values[..., k].ravel() for k, name in enumerate(names)}
    known = {name: column[~np.isnan(column)] for name, column in columns.items()}
    return {f"{group}/{name}_mean": float(column.mean()) for name, column in known.items() if len(column)}


def summarize(played: Episodes, env: EnvSpec, best: float, iteration: int, max_steps: int) -> dict[str, float]:
    """Return the metrics of an evaluation; empty if no episode has a finite return.

    Episodes with a non-finite return are excluded, because no later evaluation could exceed an infinite return. `best`
    is the highest mean return of previous evaluations.
    """
    finite = np.isfinite(played.returns)
    returns, lengths = played.returns[finite], played.lengths[finite]
    if not len(returns):
        return {}
    lives = [each for each, counts in zip(played.lives, finite, strict=True) if counts] if played.lives else []
    all_returns = np.concatenate(lives) if lives else returns
    mean = float(all_returns.mean())
    return {
        "eval/return_mean": mean,
        "eval/return_std": float(all_returns.std()),
        **team_metrics(lives),
        "eval/length_mean": float(lengths.mean()),
        **mean_env_metrics("eval", env.metrics, played.env_metrics[finite]),
        "eval/episodes": len(returns),
        "eval/return_best": max(mean, best),
        "eval/of_iteration": iteration,
        **cut_metric(count_cut(played.lengths, max_steps, env)),
    }


def prefix_metrics(name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics with the policy's name, if any, after the group: `group/NAME/metric`."""
    return {key.replace("/", f"/{name}/", 1) if name else key: value for key, value in metrics.items()}
