"""Journals of many runs as Polars data frames, parsed together for speed."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from .folder import FolderError
from .journal import EVALUATION, EVALUATION_OF, JOURNALS, read_rows, to_number

PLACE = ("run", "iteration", "step")  # columns that are not metrics
CHUNK_BYTES = 1 << 26  # size of journals parsed at once


def read_journals(runs: Sequence[Path]) -> pl.DataFrame:
    """Read and join both journals of runs: `run`, `iteration`, `step`, then metrics, in the order of the runs.

    An evaluation is placed in the row of the iteration whose policy was evaluated. Damaged lines are skipped with a
    warning.
    """
    learning, system = (_read_journal(runs, journal) for journal in JOURNALS)
    rows = learning.join(system, on=["run", "iteration"], how="full", coalesce=True, suffix="_too")
    rows = rows.with_columns(pl.coalesce("step", "step_too")).drop("step_too")
    names = [name for name in rows.columns if name not in PLACE]
    rows = rows.sort("run", "iteration").select(*PLACE, *names)
    paths = pl.Series([str(run) for run in runs], dtype=pl.String)
    return rows.with_columns(paths.gather(rows["run"]).alias("run"))


def to_series(name: str, values: Sequence[Any]) -> pl.Series:
    """Make a column from the values of a key in different runs; mixed types become JSON text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    if kinds == {int} and all(value is None or abs(value) < 1 << 63 for value in values):
        return pl.Series(name, values, pl.Int64)
    if kinds and kinds <= {int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    text = [value if value is None or isinstance(value, str) else json.dumps(value, default=str) for value in values]
    return pl.Series(name, text, pl.String)


def _read_journal(runs: Sequence[Path], name: str) -> pl.DataFrame:
    frames = [pl.DataFrame(schema={"run": pl.Int64, "iteration": pl.Int64, "step": pl.Int64})]
    paths = [run / name for run in runs]
    chunk: dict[int, bytes] = {}
    for k, path in enumerate(paths):
        if lines := _whole_lines(path):
            chunk[k] = lines
        if sum(map(len, chunk.values())) > CHUNK_BYTES:
            frames.append(_parse(chunk, paths))
            chunk = {}
    frames += [_parse(chunk, paths)] if chunk else []
    rows = pl.concat(frames, how="diagonal_relaxed")
    return _move_evaluations(rows).unique(["run", "iteration"], keep="first")


def _move_evaluations(rows: pl.DataFrame) -> pl.DataFrame:
    """Move late evaluations to the rows of the iterations whose policies were evaluated."""
    if EVALUATION_OF not in rows.columns:
        return rows
    names = [name for name in rows.columns if name.startswith(EVALUATION)]
    known = rows.select("run", evaluated="iteration", known=pl.lit(True)).unique()
    rows = rows.with_columns(evaluated=pl.col(EVALUATION_OF).cast(pl.Int64, strict=False))
    rows = rows.join(known, on=["run", "evaluated"], how="left", maintain_order="left")
    moved = rows.filter("known").select("run", "evaluated", *names).rename({"evaluated": "iteration"})
    kept = pl.when(pl.col("known").is_null()).then(pl.col(names)).name.keep()
    rows = rows.with_columns(kept).drop("evaluated", "known")
    return rows.update(moved.unique(["run", "iteration"], keep="last"), on=["run", "iteration"])


def _parse(chunk: Mapping[int, bytes], paths: Sequence[Path]) -> pl.DataFrame:
    """Parse several journals at once, ten times as fast as separately; if one is damaged, parse each by itself."""
    owners = np.repeat(list(chunk), [lines.count(b"\n") for lines in chunk.values()])
    try:
        rows = pl.read_ndjson(io.BytesIO(b"".join(chunk.values())), infer_schema_length=None)
        whole = rows.height == len(owners) and {"iteration", "step"} <= set(rows.columns)
        if whole and not rows["iteration"].has_nulls():
            return _select(rows, owners)
    except pl.exceptions.PolarsError:
        pass
    if len(chunk) > 1:
        return pl.concat([_parse({k: lines}, paths) for k, lines in chunk.items()], how="diagonal_relaxed")
    [k] = chunk
    rows = _parse_damaged(paths[k])
    return _select(rows, np.repeat([k], rows.height))


def _select(rows: pl.DataFrame, owners: np.ndarray) -> pl.DataFrame:
    place = [pl.col(name).cast(pl.Int64, strict=False) for name in ("iteration", "step")]
    metrics = pl.exclude("iteration", "step").cast(pl.Float64, strict=False).fill_nan(None)
    run = pl.Series("run", owners, pl.Int64)
    return rows.select(run, *place, metrics).filter(pl.col("iteration").is_not_null())


def _parse_damaged(path: Path) -> pl.DataFrame:
    rows = list(read_rows(path))
    names = dict.fromkeys(["iteration", "step", *(name for row in rows for name in row)])
    values = {name: [to_number(row.get(name)) for row in rows] for name in names}
    return pl.DataFrame(values, schema=dict.fromkeys(names, pl.Float64))


def _whole_lines(path: Path) -> bytes:
    try:
        lines = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error
    return lines[: lines.rfind(b"\n") + 1]
