"""Hooks of mkdocs: generate the pages of configuration keys from conf/, and the table of other libraries' names."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from paddock.config.options import read_option
from paddock.config.vocabulary import USUAL

CONF = Path(__file__).resolve().parents[2] / "conf"
PAGES = {  # page of docs/reference/config/ -> its first sentence, and files of conf/
    "run": ("every key that is not in a group: seed, budget, run folder, checkpoints", ["config.yaml", "serve.yaml"]),
    "algo": (
        "every key of each algorithm, `algo=NAME`, and of the strategies of ES, `algo/strategy=NAME`",
        ["algo/*.yaml", "algo/strategy/*.yaml"],
    ),
    # The families of POET have other keys than environments, and are complete.
    "env": (
        "every key of each environment, `env=NAME`; the tables after the first show only rows that differ from it",
        ["env/gymnasium.yaml", "env/*.yaml"],
    ),
    "vec": ("every key of each vectorization of environments, `vec=NAME`", ["vec/*.yaml"]),
    "compute": ("every key of each compute backend, `compute=NAME`", ["compute/*.yaml"]),
    "track": ("every key of each metric logger, `track=NAME`: W&B, TensorBoard", ["track/*.yaml"]),
    "sweep": ("every key of `--multirun`: launchers and Optuna", ["hydra/launcher/*.yaml", "hydra/sweeper/*.yaml"]),
}
HEADINGS = {"config.yaml": "Every run", "serve.yaml": "Environment server"}
COMMON = "env/gymnasium.yaml"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each group of the configuration; mkdocs calls this before it reads the navigation."""
    for name in PAGES:
        files.append(File.generated(config, f"reference/config/{name}.md", content=config_page(name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Insert the table of names, and set the page's rank in searches; mkdocs calls this for each page."""
    page.meta["tags"] = config.extra["keywords"].get(page.file.src_uri, [])
    if page.file.src_uri.startswith(("benchmarks/", "notebooks/", "reference/config/", "reference/seams")):
        page.meta["search"] = {"boost": 0.5}
    return markdown.replace("<!-- names -->", names_table()) if "<!-- names -->" in markdown else markdown


def config_page(name: str) -> str:
    """Return the Markdown of a page of configuration keys."""
    purpose, patterns = PAGES[name]
    files = dict.fromkeys(str(path.relative_to(CONF)) for one in patterns for path in sorted(CONF.glob(one)))
    options = {file: read_option(file, [CONF]) for file in files}
    repeated = Counter((row.key, row.meaning) for option in options.values() for row in option.rows.values())
    common = options[COMMON].rows if COMMON in options else {}
    page = [f"# Configuration: {name}\n\nLook up {purpose}.\n"]
    for file, (summary, selected, rows) in options.items():
        option = "" if file in HEADINGS else f"`{Path(file).parent}={Path(file).stem}`: "
        page += [f"## {HEADINGS.get(file, Path(file).stem)}\n\n{option}{escape(summary)}."]
        page += [f"Selects {', '.join(f'`{each}`' for each in selected)}."] if selected else []
        shown = list(rows.values())
        if file != COMMON and common.keys() - rows.keys() <= {"env.agents"}:
            default = {row.key: row.default for row in common.values()}
            shown = [row for row in shown if default.get(row.key) != row.default or repeated[row.key, row.meaning] < 3]
        page += ["\n| key | default | meaning |\n|---|---|---|"] if shown else []
        page += [f"| `{row.key}` | {row.default and f'`{row.default}`'} | {escape(row.meaning)} |" for row in shown]
        page += [""]
    return "\n".join(page)


def names_table() -> str:
    """Return a table of the names of other libraries, with the keys that they correspond to and their pages."""
    meanings: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for page in PAGES:
        for key, meaning in re.findall(r"^\| `([^`]+)` \| .* \| (.*) \|$", config_page(page), re.M):
            meanings[key][page, meaning.replace("../../", "")] += 1
    table = ["| name elsewhere | key | meaning |", "|---|---|---|"]
    for name, key in sorted((name, key) for key, names in USUAL.items() if key in meanings for name in names):
        (((page, meaning), _),) = meanings[key].most_common(1)
        table.append(f"| `{name}` | [`{key}`](reference/config/{page}.md) | {meaning} |")
    return "\n".join(table)


def escape(text: str) -> str:
    """Escape Markdown outside of code spans, and link the pages that a comment names."""
    parts = re.split(r"(`[^`]+`)", text)
    for k in range(0, len(parts), 2):
        linked = re.split(r"\bdocs/(\w+)\.md", parts[k])
        linked[::2] = [re.sub(r"[<>{}\[\]|*_]", lambda sign: f"&#{ord(sign[0])};", part) for part in linked[::2]]
        linked[1::2] = [f"[{page.replace('_', ' ')}](../../{page}.md)" for page in linked[1::2]]
        parts[k] = "".join(linked)
    return "".join(parts)
