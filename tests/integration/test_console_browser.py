"""The console in a real Chromium: the first source, an outage, a subscriber moved, the live tail,
roles, accessibility, keyboard."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ray_canal as canal
from tests.console_site import Site
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "console_browser"
NAME = "formed"
ROWS_SHOWN_MAX = 300
TAIL_ROWS_PER_S = 1000
TAIL_S = float(os.environ.get("RAY_CANAL_TAIL_S", "6"))
HEAP_GROWTH_BYTES_MAX = 4 << 20
NODES_GROWTH_MAX = 400
OUTAGE_SEEN_S = 10.0
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


@pytest.fixture(scope="module")
def proxied(mysql97: Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", mysql97.port)) as proxy:
        yield proxy


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


def test_a_first_source_by_the_form(
    site: Site, browser: Any, mysql97: Server, proxied: Proxy
) -> None:
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
    fill(browser, destination=NAME, address=proxied.address, tables=rf"{NAME}\..*")
    fill(browser, username="form_user", password="weak")
    one(browser, "button[value=check]").click()
    wait_for(lambda: has(browser, "Not yet"), 60, "the checks")
    assert "GRANT" in one(browser, ".fix pre").text.upper()
    assert not one(browser, "button[value=start]").is_enabled()
    one(browser, ".fix .copy").click()
    copied = ("Copied", "Selected: copy it")
    wait_for(lambda: one(browser, ".fix .copy").text in copied, 10, "it is copied")
    shoot(browser, "start")
    fill(browser, username="form_cdc", password="strong")
    one(browser, "button[value=check]").click()
    wait_for(lambda: has(browser, "It can start"), 60, "the checks")
    one(browser, "button[value=start]").click()
    wait_for(lambda: browser.current_url.endswith(f"/destinations/{NAME}"), 90, "it is started")
    wait_for(lambda: has(browser, "running"), 60, "its page")
    assert "strong" not in site.file.read_text()
    assert errors(browser) == []


@pytest.mark.timed
def test_an_outage_of_the_source_is_seen_on_an_open_page(
    site: Site, browser: Any, proxied: Proxy
) -> None:
    """Ten seconds of an idle machine; the overview was open all the time and was not reloaded."""
    browser.get(site.url)
    wait_for(lambda: has(browser, NAME) and has(browser, "running"), 60, "the overview")
    browser.execute_script("window.untouched = true")
    proxied.refuse(True)
    began = time.monotonic()
    wait_for(lambda: has(browser, "The destination does not read its source."), 60, "the outage")
    took = time.monotonic() - began
    print(f"an outage is on the page after {took:.1f} s")
    assert took < OUTAGE_SEEN_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert has(browser, "ray-canal check")  # what to do
    (told,) = site.ask("/api/v1/destinations")
    assert told["problems"][0]["alert"] == "CanalDown"
    assert "critical" in one(browser, ".problems li").get_attribute("class")
    shoot(browser, "overview")
    proxied.refuse(False)
    wait_for(lambda: not has(browser, "does not read"), 120, "it reads again")
    assert browser.execute_script("return window.untouched") is True
    assert errors(browser) == []


def test_a_subscriber_is_paused_moved_and_resumed(
    site: Site, browser: Any, mysql97: Server
) -> None:
    """By the buttons of the destination's page; it gets again what it had acknowledged."""
    ids = range(9001, 9004)
    with canal.connect(NAME, 1001, namespace=NAMESPACE) as connector:
        connector.subscribe(rf"{NAME}\.t", start="tail")
        before = canal.subscribers(NAME, namespace=NAMESPACE)[NAME][0]["cursor"]
        mysql97.execute(*(f"insert into {NAME}.t values ({i}, 'moved')" for i in ids))
        assert read_ids(connector) == list(ids)
        where = f"{site.url}/destinations/{NAME}"
        browser.get(where)
        wait_for(lambda: has(browser, "1001"), 60, "the subscriber")
        shoot(browser, "destination")
        press(browser, "Pause")
        wait_for(lambda: has(browser, "paused"), 60, "it is paused")
        assert canal.subscribers(NAME, namespace=NAMESPACE)[NAME][0]["paused_at"]
        field = one(browser, "input[name=to]")
        field.send_keys("nowhere")
        field.submit()
        browser.switch_to.alert.accept()
        wait_for(lambda: has(browser, "That did not work"), 60, "a place that is none")
        browser.find_element("link text", f"Back to {NAME}").click()
        wait_for(lambda: has(browser, "Pipeline"), 60, "its page")
        field = one(browser, "input[name=to]")
        field.send_keys(before)
        browser.execute_script("window.isOld = true")
        field.submit()
        browser.switch_to.alert.accept()
        wait_for(lambda: is_new(browser) and has(browser, "Pipeline"), 60, "its page again")
        press(browser, "Resume")
        wait_for(lambda: not has(browser, "paused"), 60, "it goes on")
        assert set(ids) <= set(read_ids(connector, until=ids[-1]))
    canal.unsubscribe(NAME, 1001, namespace=NAMESPACE)
    assert errors(browser) == []


def is_refreshed(browser: Any) -> bool:
    """Whether a refresh of the page replaces what is on it; made now, by the page's own script."""
    return bool(
        browser.execute_async_script(
            "const done = arguments[0], shown = document.querySelector('main h1');"
            "refresh().then(() => done(!shown.isConnected))"
        )
    )


def test_a_page_is_left_alone_while_it_is_read_or_filled(site: Site, browser: Any) -> None:
    """Marked text stays marked, and a field keeps what was typed into it without its focus; then
    the page goes on."""
    with canal.connect(NAME, 1002, namespace=NAMESPACE) as connector:
        connector.subscribe(rf"{NAME}\.t", start="tail")
    browser.get(f"{site.url}/destinations/{NAME}")
    wait_for(lambda: has(browser, "1002"), 60, "the subscriber")
    wait_for(lambda: is_refreshed(browser), 10, "a refresh")
    browser.execute_script("getSelection().selectAllChildren(document.querySelector('main h1'))")
    wait_for(lambda: has(browser, "Not refreshed while text is marked"), 10, "it says so")
    assert not is_refreshed(browser)
    assert NAME in browser.execute_script("return String(getSelection())")
    browser.execute_script("getSelection().removeAllRanges()")
    wait_for(lambda: is_refreshed(browser), 10, "a refresh")
    one(browser, "input[name=to]").send_keys("mysql-bin")
    browser.execute_script("document.activeElement.blur()")
    wait_for(lambda: has(browser, "Not refreshed while a form is being filled"), 10, "it says so")
    assert not is_refreshed(browser)
    assert one(browser, "input[name=to]").get_attribute("value") == "mysql-bin"
    one(browser, "input[name=to]").clear()
    browser.execute_script("document.activeElement.blur()")
    wait_for(lambda: is_refreshed(browser), 10, "a refresh")
    wait_for(lambda: not has(browser, "Not refreshed"), 10, "it says no more")
    canal.unsubscribe(NAME, 1002, namespace=NAMESPACE)
    for page in ("tail", "schemas", "quarantine", "schemas?table=none"):
        browser.get(f"{site.url}/destinations/{NAME}/{page}")
        browser.find_element("link text", f"Back to {NAME}").click()
        wait_for(lambda: browser.current_url.endswith(f"/destinations/{NAME}"), 10, "back")
    assert errors(browser) == []


def is_new(browser: Any) -> bool:
    """Whether another page was loaded since `isOld` was set."""
    return not browser.execute_script("return window.isOld")


def press(browser: Any, text: str) -> None:
    """Click a button once it is there: a refresh of the page may just put it elsewhere."""
    script = (
        "const found = [...document.querySelectorAll('button')]"
        ".find(each => each.textContent === arguments[0]); found?.click(); return Boolean(found)"
    )
    wait_for(lambda: bool(browser.execute_script(script, text)), 30, text)


def read_ids(connector: canal.Connector, until: int = 0) -> list[int]:
    """The ids of the rows that come, up to `until`, or three of them; acked."""
    found: list[int] = []
    deadline = time.monotonic() + 90
    while (until not in found if until else len(found) < 3) and time.monotonic() < deadline:
        message = connector.get_without_ack(100, timeout=0.5)
        for batch in message.batches:
            found += [row["after"]["id"] for row in batch.to_pylist() if row.get("after")]
        connector.ack(message.id)
    return found


def test_the_live_tail_at_1000_rows_a_second_grows_no_memory(
    site: Site, browser: Any, mysql97: Server
) -> None:
    """What JavaScript holds after a collection, and the elements of the page, once it is full and
    again after more rows. RAY_CANAL_TAIL_S=600 makes a soak of it."""
    browser.get(f"{site.url}/destinations/{NAME}/tail")
    fill(browser, tables=rf"{NAME}\.t")
    one(browser, "#tail button[type=submit]").click()
    wait_for(lambda: tail_stands(site), 60, "the tail's subscription")
    ended = threading.Event()
    written = threading.Thread(target=write_rows, args=(mysql97, ended), daemon=True)
    written.start()
    try:
        wait_for(lambda: rows_shown(browser) == ROWS_SHOWN_MAX, 60, "a full page")
        before = held(browser)
        counted = count(browser)
        began = time.monotonic()
        time.sleep(TAIL_S)
        after = held(browser)
        rate = (count(browser) - counted) / (time.monotonic() - began)
    finally:
        ended.set()
        written.join(60)
    print(f"live tail: {rate:.0f} rows/s, heap {before[0]} -> {after[0]} bytes, "
          f"nodes {before[1]} -> {after[1]}")  # fmt: skip
    assert rate > TAIL_ROWS_PER_S / 10  # of a loaded machine
    assert rows_shown(browser) <= ROWS_SHOWN_MAX
    assert after[0] - before[0] < HEAP_GROWTH_BYTES_MAX
    assert after[1] - before[1] < NODES_GROWTH_MAX
    one(browser, "#pause").click()
    assert errors(browser) == []


def tail_stands(site: Site) -> bool:
    found = site.ask(f"/api/v1/destinations/{NAME}/subscribers")
    return any(each["ephemeral"] for each in found)


def rows_shown(browser: Any) -> int:
    script = "return document.getElementById('rows').children.length"
    return int(browser.execute_script(script))


def count(browser: Any) -> int:
    """Rows that came, those included that were counted and not shown."""
    text = one(browser, "#tail-state").text
    return sum(int(word) for word in text.replace(",", "").split() if word.isdigit())


def held(browser: Any) -> tuple[int, int]:
    """Bytes of JavaScript's heap after a collection, and nodes of the document."""
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    heap = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]
    nodes = browser.execute_script("return document.getElementsByTagName('*').length")
    return int(heap), int(nodes)


def write_rows(server: Server, ended: threading.Event) -> None:
    """So many rows a second until it is ended."""
    number = 100_000
    while not ended.is_set():
        began = time.monotonic()
        for _ in range(4):
            values = ",".join(
                f"({i}, 'a note of {i}')" for i in range(number, number + TAIL_ROWS_PER_S // 4)
            )
            server.execute(f"insert into {NAME}.t values {values}")
            number += TAIL_ROWS_PER_S // 4
        ended.wait(max(1.0 - (time.monotonic() - began), 0.0))


def test_the_live_tail_keeps_a_screenful(site: Site, browser: Any, mysql97: Server) -> None:
    browser.get(f"{site.url}/destinations/{NAME}/tail")
    one(browser, "#tail button[type=submit]").click()

    wait_for(lambda: tail_stands(site), 60, "the tail's subscription")
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
    browser.execute_script("form.dataset.events = '/api/v1/destinations/gone/tail'")
    one(browser, "#tail button[type=submit]").click()
    wait_for(lambda: has(browser, "no destination 'gone' is running"), 20, "why it is refused")
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
    """axe-core, light and dark; nothing is wider than a phone; no page writes an error."""
    pages = (
        "/",
        f"/destinations/{NAME}",
        f"/destinations/{NAME}/tail",
        f"/destinations/{NAME}/schemas?table={NAME}.t",
        f"/destinations/{NAME}/quarantine",
        "/start",
        "/destinations/none",
    )
    wrong = []
    for mode in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", _mode(mode))
        for page in pages:
            browser.get(site.url + page)
            wrong += [f"{mode} {page}: {each}" for each in findings(browser, axe)]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", _PHONE)
    is_narrow = "return document.documentElement.scrollWidth <= 390"
    for page in pages:
        browser.get(site.url + page)
        # A busy browser takes a moment to become a phone.
        wait_for(lambda: bool(browser.execute_script(is_narrow)), 10, f"{page} fits a phone")
        wrong += [f"{page}: {each}" for each in errors(browser)]
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wrong == []
    assert errors(browser) == []


def test_every_action_is_reached_by_keyboard(site: Site, browser: Any) -> None:
    """By the tab key alone: the skip link first, then each link, field and button, visibly."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    # Keys go to what has the focus: a page may replace what had it.
    of_one = f"/destinations/{NAME}"
    for page in ("/", of_one, f"{of_one}/tail", f"{of_one}/schemas", "/start"):
        browser.get(site.url + page)
        wait_for(lambda: has(browser, NAME) or has(browser, "Start a source"), 60, "the page")
        wanted = browser.execute_script(
            "return [...document.querySelectorAll('a[href], button:not(:disabled), "
            "input:not([type=hidden])')].length"
        )
        reached = []
        for _ in range(wanted + 6):
            ActionChains(browser).send_keys(Keys.TAB).perform()
            reached.append(
                browser.execute_script(
                    "const at = document.activeElement;"
                    "const seen = getComputedStyle(at).outlineStyle !== 'none'"
                    " || at.className === 'skip' || at.tagName === 'BODY';"
                    "return at.tagName + (seen ? '' : ' is not visible: ' + at.outerHTML)"
                )
            )
        assert [each for each in reached if "not visible" in each] == []
        assert len([each for each in reached if each in ("A", "BUTTON", "INPUT")]) >= wanted
    browser.get(site.url)
    ActionChains(browser).send_keys(Keys.TAB).perform()
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    assert browser.execute_script("return document.activeElement.id") == "main"
