"""Options of the configuration, read from their YAML files: summaries, keys, defaults and comments."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from paddock.envs.errors import ConfigError


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
            comments, line = [comment(line)], line + 1
            while lines[line].startswith(" " * 8) and lines[line].strip().startswith("#"):  # continues the comment
                comments, line = [*comments, comment(line)], line + 1
            if isinstance(value, yaml.SequenceNode) and not value.flow_style:
                comments += [comment(item.start_mark.line) for item in value.value]
            if any(comments) or not section:
                yield Row(name, "" if section else source(value), "; ".join(filter(None, comments)))
            if section:
                yield from walk(value, name)

    if (root := yaml.compose(text)) is not None:
        yield from walk(root, prefix)


class Option(NamedTuple):
    """Contents of the file of an option."""

    summary: str
    selected: list[str]  # options that it selects in other groups, as group=option
    rows: dict[str, Row]  # by key, inherited ones first


def read_option(file: str, folders: Sequence[Path]) -> Option:
    """Read an option, such as algo/ppo.yaml, from the first config folder that has it, with what it inherits."""
    path = next((path for path in (folder / file for folder in folders) if path.exists()), None)
    if path is None:
        raise ConfigError(f"{file} does not exist in a config folder; check the defaults lists")
    text, folder = path.read_text(), Path(file).parent
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML; correct it: {error}") from error
    selected, rows = list[str](), dict[str, Row]()
    for entry in document.get("defaults", []):
        if isinstance(entry, dict):
            ((group, option),) = entry.items()
            group = re.sub(r"override |@.*", "", group)
            within = "" if group.startswith("/") or folder == Path() else f"{folder}/"
            selected += [f"{within}{group.removeprefix('/')}={option}"] if option else []
        elif entry != "_self_":
            rows |= read_option(f"{folder}/{entry}.yaml", folders).rows
    prefix = "" if folder == Path() or "@package _global_" in text else str(folder).replace("/", ".")
    return Option(read_summary(path).rstrip("."), selected, rows | {row.key: row for row in read_rows(text, prefix)})


def read_summary(path: Path) -> str:
    """Return the first comment of an option's file."""
    comments = (line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
