"""Plot learning curves and final scores of PPO and SPO with 95 % intervals: python figure.py FOLDER FILE."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from paddock.reports.statistics import improvement, improvement_interval, interquartile_mean, interval
from paddock.runs.results import read_metrics, read_runs

METRIC = "eval/return_mean"
NAMES = {"default": "PPO", "losses.spo_loss": "SPO"}
COLORS = {"PPO": "#0072b2", "SPO": "#d55e00"}  # distinguishable for color-blind readers

folder, file = sys.argv[1:]
runs = read_runs(folder).select("run", "seed", pl.col("algo.loss").fill_null("default").replace(NAMES))
evaluations = read_metrics(folder).select("run", "step", METRIC).drop_nulls().join(runs, on="run")
evaluations = evaluations.unique(("algo.loss", "seed", "step"), maintain_order=True)  # a rerun counts once

plt.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42})
figure, (curves, scores) = plt.subplots(1, 2, figsize=(5.5, 2.2), width_ratios=(2, 1), layout="constrained")
final = {}
for row, (name, color) in enumerate(COLORS.items()):
    table = evaluations.filter(pl.col("algo.loss") == name).pivot("seed", index="step", values=METRIC).sort("step")
    steps, returns = table["step"].to_numpy(), table.drop("step").to_numpy()[:, :, None]  # [T], [T, seeds, tasks = 1]
    center, (low, high) = interquartile_mean(returns), interval(returns)  # [T] each
    final[name], seeds = returns[-1], returns.shape[1]

    curves.plot(steps, center, color=color, label=f"{name}, {seeds} seeds")
    curves.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
    scores.scatter(final[name], np.full(seeds, row + 0.2), color=color, s=8, alpha=0.5, linewidth=0)
    scores.plot((low[-1], high[-1]), (row, row), color=color)
    scores.plot(center[-1], row, "o", color=color, markersize=5)
    print(f"{name}: IQM {center[-1]:.3f}, 95 % interval [{low[-1]:.3f}, {high[-1]:.3f}], {seeds} seeds")

curves.set(xlabel="environment steps", ylabel="evaluation return")
curves.legend(frameon=False, loc="lower right")
scores.set(xlabel="final evaluation return", yticks=range(len(final)), yticklabels=final, ylim=(1.6, -0.6))
figure.savefig(file, dpi=200)

low, high = improvement_interval(final["SPO"], final["PPO"])
better = float(improvement(final["SPO"], final["PPO"]))
print(f"P(SPO > PPO) = {better:.2f}, 95 % interval [{low:.2f}, {high:.2f}]")
