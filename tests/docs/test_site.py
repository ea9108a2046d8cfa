"""The site: it builds, fetches nothing from elsewhere, and its search finds the right pages, in a real browser."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

pytestmark = pytest.mark.xdist_group("site")  # it is built once

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FOUND = {  # what readers search -> pages, one of which must be among the first three results
    "wandb": ["results"],
    "W&B": ["results"],
    "normalize_rewards": ["names", "ppo", "reference/config/algo"],
    "learning rate": ["reference/config/algo"],
    "own environment": ["custom_environment"],
    "own algorithm": ["custom_algorithm"],
    "custom network": ["custom_network"],
    "plugin": ["extend"],
    "figure": ["tutorial/6_figure", "results"],
    "wrapper": ["environments"],
    "LSTM": ["learners", "ppo"],
    "mask": ["actions"],
    "Slurm": ["slurm"],
    "seed": ["reference/config/run"],
    "checkpoint": ["resume"],
    "ONNX": ["python"],
    "GPU": ["learners"],
    "tutorial": ["tutorial/1_cartpole"],
    "FAQ": ["faq"],
    "lr": ["names"],
    "track=wandb": ["results"],
    "algo.clip_coef": ["names", "reference/config/algo"],
    "ppo/approx_kl": ["reference/metrics"],
}
# Types the words into the search of the site's first page, and sends the pages found.
SEARCH = """<body><iframe src="index.html?q=paddock"></iframe><script>
const sleep = ms => new Promise(done => setTimeout(done, ms));
window.onload = async () => {
  const frame = document.querySelector("iframe"), found = {};
  const read = selector => [...(frame.contentDocument?.querySelectorAll(selector) ?? [])];
  const until = async pattern => {
    while (!pattern.test(read(".md-search-result__meta")[0]?.textContent)) await sleep(20);
  };
  const type = (words, pattern) => {
    read(".md-search__input")[0].value = words;
    read(".md-search__input")[0].dispatchEvent(new Event("keyup"));
    return until(pattern);
  };
  await until(/\\d/);
  for (const words of WORDS) {
    await type("", /Type/);
    await type(words, /\\d|No/);
    found[words] = read(".md-search-result__item").map(item => item.querySelector("a").pathname);
  }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
};
</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "-f", "docs/site/mkdocs.yml", "-d", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_fetches_nothing(site: Path) -> None:
    docs = ROOT / "docs"
    for page in docs.rglob("*.md"):
        file = site / page.relative_to(docs).with_suffix(".html")
        html = (site / "index.html" if page.name == "README.md" else file).read_text()
        assert not re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(?:https?:)?//", html), page
        assert not re.findall(r"<link[^>]* rel=\"?stylesheet[^>]* href=\"?(?:https?:)?//", html), page
    reference = (site / "reference" / "seams.html").read_text()
    assert "paddock.envs.spec.EnvSpec" in reference and "paddock.algos.protocol.Algorithm" in reference


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_search_finds_the_right_page_among_the_first_three(site: Path, tmp_path: Path) -> None:
    settings = (ROOT / "docs" / "site" / "mkdocs.yml").read_text()
    keywords = yaml.safe_load(re.search(r"^  keywords:.*\n((?:    .*\n)+)", settings, re.M)[1])  # type: ignore[index]
    assert [page for page in keywords if not (site / page).with_suffix(".html").exists()] == []
    found = {
        words: [page.strip("/").removesuffix(".html") for page in pages]
        for words, pages in search(site, tmp_path).items()
    }
    assert found.keys() == FOUND.keys()
    assert {words: pages[:5] for words, pages in found.items() if not set(pages[:3]) & set(FOUND[words])} == {}


def search(site: Path, profile: Path) -> dict[str, list[str]]:
    """Search for each of the words in Chromium; return the paths of the pages found, best first."""
    found: dict[str, list[str]] = {}
    done = threading.Event()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path != "/search.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(SEARCH.replace("WORDS", json.dumps([*FOUND])).encode())

        def do_POST(self) -> None:
            found.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

    assert CHROMIUM is not None
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        browser = subprocess.Popen(
            [CHROMIUM, *flags, f"http://127.0.0.1:{server.server_port}/search.html"], stderr=subprocess.DEVNULL
        )
        try:
            assert done.wait(180)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    return found
