"""Hooks of mkdocs: link the packages under their import name, add notebooks and pages of the root, break long names."""

import base64
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_startup(**_: Any) -> None:
    """Link the folders into the layout of the import name; mkdocs calls this before it reads any page."""
    tree = ROOT / "build" / "reference" / "paddock"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for source in [*(ROOT / "platform").iterdir(), ROOT / "algos", ROOT / "envs"]:
        if source.name != "__init__.py":
            (tree / source.name).symlink_to(source)
    (tree / "__init__.py").symlink_to(ROOT / "paddock.py")


def on_config(config: Any) -> Any:
    """Show the version and, once pyproject.toml has a repository, links to it; mkdocs calls this after `on_startup`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.copyright = f"Paddock {project['version']}"
    if repository := project.get("urls", {}).get("Repository"):
        config.repo_url, config.edit_uri = repository, "edit/main/docs/"
        config.theme["features"].append("content.action.edit")
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add pages of the repository's root and of notebooks; mkdocs calls this before it reads the navigation."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text().replace("](docs/", "](")
        text = re.sub(r"\[([^]]+)\]\((?:LICENSE|CODE_OF_CONDUCT\.md)\)", r"\1", text)
        files.append(File.generated(config, name.lower(), content=link_root_pages(text)))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        images: list[bytes] = []
        cells = json.loads(path.read_text())["cells"]
        text = "\n\n".join(part for cell in cells for part in render_cell(cell, path.stem, images))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for number, image in enumerate(images):
            files.append(File.generated(config, f"notebooks/{path.stem}-{number}.png", content=image))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link pages of the root by their names on the site; mkdocs calls this for each page."""
    return link_root_pages(markdown)


def link_root_pages(markdown: str) -> str:
    """Replace links to pages of the root by links to their copies."""
    for name in ROOT_PAGES:
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(name)}", f"]({name.lower()}", markdown)
    return markdown


def render_cell(cell: dict[str, Any], name: str, images: list[bytes]) -> Iterator[str]:
    """Yield a cell and its outputs in Markdown; append its images, which are saved as NAME-NUMBER.png."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![Output of the cell above]({name}-{len(images)}.png)"
            images.append(base64.b64decode(data["image/png"]))
        elif "text/html" in data:
            table = re.sub(r"<style>.*?</style>|\s*\n\s*", " ", "".join(data["text/html"]), flags=re.S)
            yield '<div class="output">' + re.sub(r"<table[^>]*>", "<table>", table) + "</div>"
        else:
            yield f"```text\n{''.join(data.get('text/plain', output.get('text', ''))).rstrip()}\n```"


def on_page_content(html: str, **_: Any) -> str:
    """Allow line breaks inside long paths and names, and none inside options; mkdocs calls this for each page."""

    def loosen(cell: re.Match[str]) -> str:
        return re.sub(r"(?<=<code>)[^<]+", lambda code: re.sub(r"(?<=\w)([/_=.])(?=\w)", r"\1<wbr>", code[0]), cell[0])

    def join(block: re.Match[str]) -> str:
        return re.sub(r"(?<=[\s>])--[a-z][\w-]*", r'<span class="option">\g<0></span>', block[0])

    html = re.sub(r"<td>.*?</td>", loosen, html, flags=re.S)
    html = re.sub(
        r"(?<=<code>)[^<\s]{25,}(?=</code>)", lambda code: re.sub(r"(?<=\w[/:])(?=\w)", "<wbr>", code[0]), html
    )
    return re.sub(r"<pre>.*?</pre>", join, html, flags=re.S)
