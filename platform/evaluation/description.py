"""Evaluation results as text (`describe`) and as JSON (`as_plain`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.folder import finite
from ..runs.loop import Progress
from .fresh_episodes import MAX_STEPS, RESAMPLES, Evaluation


def describe(run: Path, options: Mapping[str, Any], env: Sequence[str], result: Evaluation) -> dict[str, Any]:
    """Return the lines of the text report, by label."""
    returns, lengths, n = result.returns, result.lengths, len(result.returns)
    lines: dict[str, Any] = {
        "run": run,
        "policy": _name_policy(options.get("which", "last"), result),
        **({"environment": result.env.id + "".join(f" {word}" for word in env)} if env else {}),
        **({} if result.target is None else result.target.describe()),
        **({} if result.elite is None else result.elite.describe()),
        "episodes": f"{n:,} on fresh seeds, from seed {options.get('seed', 0)}",
        "mean return": _show(returns.mean()),
        "95% interval": "undefined for one episode"
        if n == 1
        else f"[{', '.join(map(_show, result.interval))}], bootstrapped with {RESAMPLES:,} resamples",
        "spread": f"min {_show(returns.min())}, max {_show(returns.max())}"
        + ("" if n == 1 else f", standard deviation {_show(returns.std(ddof=1))}"),
        "mean length": f"{_show(lengths.mean())} steps",
        **describe_lives(result),
        **{f"mean {name}": _show(_mean(values)) for name, values in result.metrics.items()},
    }
    if options.get("stochastic"):
        lines["actions"] = "sampled, as in training"
    if result.cut:
        limit = options.get("max_steps", MAX_STEPS)
        lines["truncated"] = f"{result.cut:,} episodes after max_steps={limit} steps; increase it to let them finish"
    if result.film is not None:
        film = result.film
        note = "; MPEG-4, as PyAV lacks H.264 here: browsers may not play it" if film.codec == "mpeg4" else ""
        lines["video"] = f"{options['video']}, episode 0: {film.frames} frames, return {_show(film.return_)}{note}"
    return lines


def describe_lives(result: Evaluation) -> dict[str, str]:
    """Return lines about team and agent returns; empty for single-agent environments."""
    if not result.lives:
        return {}
    returns, seats = np.concatenate(result.lives), np.concatenate(result.seats)
    team_returns = [life_returns.sum() for life_returns in result.lives]
    roles = result.env.roles if len(result.env.roles) > 1 else ()
    return {
        "team return": f"{_show(float(np.mean(team_returns)))}, summed over agents",
        "lives": _describe_returns(returns),
        **{f"of {role.name}": _describe_returns(returns[np.isin(seats, role.seats)]) for role in roles},
    }


def as_plain(run: Path, options: Mapping[str, Any], result: Evaluation) -> dict[str, Any]:
    """Return the evaluation results as JSON values, with null for non-finite numbers."""
    target = result.target
    results = {
        "run": str(run),
        "policy": options.get("which", "last"),
        "iteration": int(result.iteration),
        "step": int(result.progress.metrics["step"]),
        "niche": None if target is None else target.niche.number,
        "agent": None if target is None or target.guest is None else target.guest.number,
        "cell": None if result.elite is None else result.elite.cell,
        "env": result.env.fields,
        "seed": options.get("seed", 0),
        "stochastic": options.get("stochastic", False),
        "return_mean": float(result.returns.mean()),
        "return_interval_95": result.interval,
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        **({"lives": [returns.tolist() for returns in result.lives]} if result.lives else {}),
        **({"seats": [seats.tolist() for seats in result.seats]} if result.lives else {}),
        "metrics": {name: values.tolist() for name, values in result.metrics.items()},
        "max_steps": options.get("max_steps", MAX_STEPS),
        "cut": result.cut,
    }
    return {key: finite(value) for key, value in results.items()}


def describe_moment(progress: Progress) -> str:
    """Describe the progress of a run by iteration and step."""
    return f"at iteration {progress.metrics['iteration']:,} ({progress.metrics['step']:,} steps)"


def _name_policy(which: str, result: Evaluation) -> str:
    if result.iteration == result.progress.metrics["iteration"]:
        return f"{which}, {describe_moment(result.progress)}"
    return f"{which}, at iteration {result.iteration:,} (of a run {describe_moment(result.progress)})"


def _describe_returns(returns: NDArray[np.float64]) -> str:
    if not len(returns):
        return "none"
    count = f"{len(returns):,}"
    return f"{count}, mean return {_show(returns.mean())}, min {_show(returns.min())}, max {_show(returns.max())}"


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of all values except NaN, or NaN if there are none."""
    valid = values[~np.isnan(values)]
    return float(valid.mean()) if len(valid) else float("nan")


def _show(value: float) -> str:
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
