"""The console in a real Chromium: the first source, the live tail, roles, accessibility."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console_site import Site
from tests.processes import wait_for
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "console_browser"
NAME = "formed"
ROWS_SHOWN_MAX = 300
_PHONE = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
_SMALL = {"width": 1120, "height": 700, "deviceScaleFactor": 1, "mobile": False}
_USERS = [
    {"username": "vera", "password": "see", "rights": ["read"]},
    {"username": "ada", "password": "all", "rights": ["admin"]},
]


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("browsed"), NAMESPACE)
    yield site
    site.close()


def one(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def fill(browser: Any, **values: str) -> None:
    for name, value in values.items():
        field = one(browser, f"input[name={name}]")
        field.clear()
        field.send_keys(value)


def has(browser: Any, text: str) -> bool:
    script = "return document.body.innerText.includes(arguments[0])"
    return bool(browser.execute_script(script, text))


def shoot(browser: Any, name: str) -> None:
    """Keep a picture of the page, light and dark, if RAY_CANAL_SCREENSHOTS names a folder."""
    folder = os.environ.get("RAY_CANAL_SCREENSHOTS")
    if not folder:
        return
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", _SMALL)
    for mode in ("dark", "light"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", _mode(mode))
        browser.save_screenshot(f"{folder}/{name}-{mode}.png")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _mode(mode: str) -> dict[str, Any]:
    return {"features": [{"name": "prefers-color-scheme", "value": mode}]}


def errors(browser: Any) -> list[str]:
    """What the pages wrote to the browser's console, but for answers that are refused by design."""
    told = [entry["message"] for entry in browser.get_log("browser")]
    return [each for each in told if "status of 4" not in each]


def findings(browser: Any, axe: str) -> list[str]:
    """Serious and critical findings of axe-core."""
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations))"
    )
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_a_first_source_by_the_form(site: Site, browser: Any, mysql97: Server) -> None:
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key, note text)",
        "create user if not exists form_user@'%' identified by 'weak'",
        "create user if not exists form_cdc@'%' identified by 'strong'",
        "grant select, replication slave, replication client on *.* to form_cdc@'%'",
    )
    browser.get(site.url)
    assert has(browser, "No destination is running")
    one(browser, "a.button").click()
    fill(browser, destination=NAME, address=mysql97.address, tables=rf"{NAME}\..*")
    fill(browser, username="form_user", password="weak")
    one(browser, "button[value=check]").click()
    wait_for(lambda: has(browser, "Not yet"), 60, "the checks")
    assert "GRANT" in one(browser, ".fix pre").text.upper()
    assert not one(browser, "button[value=start]").is_enabled()
    shoot(browser, "start")
    fill(browser, username="form_cdc", password="strong")
    one(browser, "button[value=check]").click()
    wait_for(lambda: has(browser, "It can start"), 60, "the checks")
    one(browser, "button[value=start]").click()
    wait_for(lambda: browser.current_url.endswith(f"/destinations/{NAME}"), 90, "it is started")
    wait_for(lambda: has(browser, "running"), 60, "its page")
    assert "strong" not in site.file.read_text()
    assert errors(browser) == []


def test_the_live_tail_keeps_a_screenful(site: Site, browser: Any, mysql97: Server) -> None:
    browser.get(f"{site.url}/destinations/{NAME}/tail")
    one(browser, "#tail button[type=submit]").click()

    def stands() -> bool:
        found = site.ask(f"/api/v1/destinations/{NAME}/subscribers")
        return any(each["ephemeral"] for each in found)

    wait_for(stands, 60, "the tail's subscription")
    many = 3000
    for first in range(1, many, 500):
        values = ",".join(f"({i}, 'note {i}')" for i in range(first, first + 500))
        mysql97.execute(f"insert into {NAME}.t values {values}")
    mysql97.execute(f"update {NAME}.t set note = 'marked' where id = {many}")
    wait_for(lambda: has(browser, "marked"), 60, "the last row")
    rows = browser.execute_script("return document.getElementById('rows').children.length")
    assert 0 < rows <= ROWS_SHOWN_MAX
    assert one(browser, "#rows tr:first-child del").text == f"note {many}"
    shoot(browser, "tail")
    one(browser, "#pause").click()
    assert has(browser, "Paused")
    assert errors(browser) == []


def test_who_may_only_look_finds_no_buttons(
    site: Site, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    closed = Site(
        tmp_path_factory.mktemp("closed"), NAMESPACE, user=_USERS, host="127.0.0.1"
    )
    try:
        browser.get(closed.url)
        assert browser.current_url.endswith("/login")
        fill(browser, username="vera", password="see")
        one(browser, "button.main").click()
        wait_for(lambda: has(browser, "viewer"), 60, "the overview")
        wait_for(lambda: has(browser, NAME), 60, "the destination")
        browser.get(f"{closed.url}/destinations/{NAME}")
        wait_for(lambda: has(browser, "Pipeline"), 60, "its status")
        assert browser.find_elements("css selector", "button.danger") == []
        csrf = one(browser, "header input[name=csrf]").get_attribute("value")
        refused = browser.execute_async_script(
            "const [path, csrf, done] = arguments;"
            "fetch(path, {method: 'POST', headers: {'X-CSRF-Token': csrf}})"
            ".then(answer => done(answer.status))",
            f"/api/v1/destinations/{NAME}/stop",
            csrf,
        )
        assert refused == 403
    finally:
        browser.get("about:blank")  # its page would ask the console that is gone
        closed.console.stop()
        browser.get_log("browser")


def test_pages_work_for_everybody(site: Site, browser: Any, axe: str) -> None:
    """axe-core, light and dark; nothing is wider than a phone."""
    pages = ("/", f"/destinations/{NAME}", f"/destinations/{NAME}/tail", "/start")
    wrong = []
    for mode in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", _mode(mode))
        for page in pages:
            browser.get(site.url + page)
            wrong += [f"{mode} {page}: {each}" for each in findings(browser, axe)]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", _PHONE)
    for page in pages:
        browser.get(site.url + page)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        if width > 390:
            wrong.append(f"{page}: {width} pixels wide")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wrong == []
    assert errors(browser) == []
