"""The documentation's site: mkdocs builds it without a warning, and no link in it is broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
FOLDERS = {"tutorial", "how-to", "reference", "explanation"}


class _Page(HTMLParser):
    """Links and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    done = subprocess.run(
        [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _broken(site: Path) -> Iterator[str]:
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":  # its links are those of the site's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                yield f"{path.relative_to(site)}: {link}: no such file"
            elif parts.fragment and target in pages:
                if unquote(parts.fragment) in pages[target].anchors:
                    continue
                yield f"{path.relative_to(site)}: {link}: no such anchor"


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in PAGES:
        assert (site / page.with_suffix(".html")).exists(), page


def test_every_link_leads_somewhere(site: Path) -> None:
    assert not list(_broken(site))


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text('<a href="two.html#there">', encoding="utf-8")
    (tmp_path / "two.html").write_text('<p id="here"><a href="three.html">', encoding="utf-8")
    assert sorted(_broken(tmp_path)) == [
        "one.html: two.html#there: no such anchor",
        "two.html: three.html: no such file",
    ]


def test_pages_are_in_four_folders() -> None:
    assert {page.parts[0] for page in PAGES} == FOLDERS | {"index.md"}


def test_the_performance_page_is_short() -> None:
    text = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
