# What type checkers read of an installed `import paddock`: PEP 561 has no mark for paddock.py, which is a module alone.
from pathlib import Path

from _paddock.platform.api import Run as Run
from _paddock.platform.api import defaults as defaults
from _paddock.platform.api import load as load
from _paddock.platform.api import run as run
from _paddock.platform.evaluation.policy import TrainedPolicy as TrainedPolicy
from _paddock.platform.runs.results import read_events as read_events
from _paddock.platform.runs.results import read_metrics as read_metrics
from _paddock.platform.runs.results import read_runs as read_runs
from _paddock.platform.sweep.study import read_trials as read_trials

CONF: Path
