"""Hooks of mkdocs: generate the pages of configuration keys from conf/, and the table of other libraries' names."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from mkdocs.structure.files import File, Files

from paddock.config.vocabulary import USUAL

CONF = Path(__file__).resolve().parents[2] / "conf"
PAGES = {  # page of docs/reference/config/ -> its first sentence, and files of conf/
    "run": ("every key that is not in a group: seed, budget, run folder, checkpoints", ["config.yaml", "serve.yaml"]),
    "algo": ("every key of each algorithm, `algo=NAME`", ["algo/*.yaml"]),
    # The families of POET have other keys than environments, and are complete.
    "env": (
        "every key of each environment, `env=NAME`; the tables after the first show only rows that differ from it",
        ["env/gymnasium.yaml", "env/*.yaml"],
    ),
    "vec": ("every key of each vectorization of environments, `vec=NAME`", ["vec/*.yaml"]),
    "compute": ("every key of each compute backend, `compute=NAME`", ["compute/*.yaml"]),
    "track": ("every key of each metric logger, `track=NAME`: W&B, TensorBoard, MLflow", ["track/*.yaml"]),
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


class Row(NamedTuple):
    """A key as written on the command line, its default as in YAML, and its comment."""

    key: str
    default: str
    meaning: str


def read_rows(text: str, prefix: str) -> Iterator[Row]:
    """Yield the keys of a YAML file in their order; a section has no default and precedes its keys."""
    lines = [*text.splitlines(), ""]

    def comment(line: int) -> str:
        found = re.search(r"(?:^|\s)#\s+(.*)", lines[line])
        return found[1] if found else ""

    def source(node: yaml.Node) -> str:
        if isinstance(node, yaml.SequenceNode) and not node.flow_style:
            return f"[{', '.join(source(item) for item in node.value)}]"
        return text[node.start_mark.index : node.end_mark.index]

    def walk(node: yaml.Node, path: str) -> Iterator[Row]:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == "defaults" and path == prefix:
                continue
            name, line = f"{path}.{key.value}".lstrip("."), key.start_mark.line
            section = isinstance(value, yaml.MappingNode) and not value.flow_style
            parts, line = [comment(line)], line + 1
            while lines[line].startswith(" " * 8) and lines[line].strip().startswith("#"):  # continues the comment
                parts, line = [*parts, comment(line)], line + 1
            if isinstance(value, yaml.SequenceNode) and not value.flow_style:
                parts += [comment(item.start_mark.line) for item in value.value]
            if any(parts) or not section:
                yield Row(name, "" if section else source(value), "; ".join(filter(None, parts)))
            if section:
                yield from walk(value, name)

    yield from walk(yaml.compose(text), prefix)


def read_option(file: str) -> tuple[str, list[str], dict[str, Row]]:
    """Return an option's summary, the options that it selects in other groups, and its rows, inherited ones first."""
    text, folder = (CONF / file).read_text(), Path(file).parent
    summary = next(line[2:] for line in text.splitlines() if line.startswith("# ") and "@package" not in line)
    selected, rows = [], {}
    for entry in (yaml.safe_load(text) or {}).get("defaults", []):
        if isinstance(entry, dict):
            ((group, option),) = entry.items()
            selected += [f"{re.sub(r'override |@.*', '', group).removeprefix('/')}={option}"] if option else []
        elif entry != "_self_":
            rows |= read_option(f"{folder}/{entry}.yaml")[2]
    prefix = "" if folder == Path() or "@package _global_" in text else str(folder).replace("/", ".")
    return summary.rstrip("."), selected, rows | {row.key: row for row in read_rows(text, prefix)}


def config_page(name: str) -> str:
    """Return the Markdown of a page of configuration keys."""
    purpose, patterns = PAGES[name]
    files = dict.fromkeys(str(path.relative_to(CONF)) for one in patterns for path in sorted(CONF.glob(one)))
    options = {file: read_option(file) for file in files}
    repeated = Counter((row.key, row.meaning) for _, _, rows in options.values() for row in rows.values())
    common = options[COMMON][2] if COMMON in options else {}
    page = [f"# Configuration: {name}\n\nThis page lists {purpose}.\n"]
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
