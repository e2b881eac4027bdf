"""The pictures in the documents are of the pages as they are."""

from __future__ import annotations

from tests.console_screenshots import FOLDER, NOTED, made_of

PAGES = ("login", "overview", "destination", "schemas", "quarantine", "tail", "start", "error")


def test_each_page_is_there_in_light_and_dark() -> None:
    found = {path.stem for path in FOLDER.glob("*.png")}
    assert found == {f"{page}-{mode}" for page in PAGES for mode in ("light", "dark")}


def test_pictures_are_taken_again_when_pages_change() -> None:
    noted = NOTED.read_text(encoding="ascii").strip()
    assert noted == made_of(), "the console's pages have changed: run `make screenshots`"
