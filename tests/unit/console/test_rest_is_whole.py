"""Everything of the command line is in the REST API, and all of that in the Python client."""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from ray_canal import cli
from ray_canal.cli.subscriber import Action
from ray_canal.console.app import application
from ray_canal.console.rest_client import ConsoleClient
from tests.unit.console.played import Played, context_over

ONE = "/destinations/{destination}"
CLIENT = f"{ONE}/subscribers/{{client_id}}"
REST_OF = {
    "start": {"POST /deployment/apply", "POST /start"},
    "serve": {"POST /deployment/apply"},
    "apply": {"POST /deployment/plan", "POST /deployment/apply"},
    "check": {"POST /deployment/check", "POST /check"},
    "import-meta": {"POST /deployment/import-meta"},
    "stop": {f"POST {ONE}/stop"},
    "status": {"GET /destinations", f"GET {ONE}", f"GET {ONE}/samples", f"GET {ONE}/schemas"},
    "explain": {f"GET {ONE}/explain"},
    "nodes": {"GET /nodes"},
    "position": {f"GET {ONE}/position"},
    "tail": {f"GET {ONE}/tail"},
    "redrive": {
        f"GET {ONE}/quarantine",
        f"POST {ONE}/quarantine/decode",
        f"POST {ONE}/quarantine/release",
    },
    "subscribers": {f"GET {ONE}/subscribers"},
    "unsubscribe": {f"DELETE {CLIENT}"},
    "filter": {f"PUT {CLIENT}/filter", f"PATCH {ONE}/filter"},
    "subscriber show": {f"GET {CLIENT}"},
    "subscriber remove": {f"DELETE {CLIENT}"},
    **{
        f"subscriber {each.value}": {f"POST {CLIENT}/{{action}}"}
        for each in Action
        if each not in (Action.show, Action.remove)
    },
    "snapshot read": {f"GET {ONE}/rows"},
    "snapshot start": {f"POST {CLIENT}/snapshot"},
    "snapshot status": {f"GET {CLIENT}/snapshot"},
    **{
        f"snapshot {each}": {f"POST {CLIENT}/snapshot/{{action}}"}
        for each in ("pause", "resume", "cancel")
    },
    "sink list": {"POST /deployment/sinks"},
    "sink start": {"POST /deployment/sinks/start"},
    "sink status": {"GET /sinks", f"GET {ONE}/sinks"},
    "sink compact": {f"POST {ONE}/sinks/{{name}}/compact"},
    **{
        f"sink {each}": {f"POST {ONE}/sinks/{{name}}/{{action}}"}
        for each in ("stop", "pause", "resume", "seek")
    },
}
"""What does the same, by command."""
IN_THE_CALLERS_PROCESS = {
    "console": "it is the console",
    "decode": "decodes the caller's files",
    "verify": "decodes a log twice, in the caller's process",
    "import": "turns the caller's files of Canal into a canal.toml",
    "demo": "runs a deployment of its own",
    "sink run": "runs a sink in the foreground",
    "spark-jar": "is about a file of the caller's installation",
}
"""Commands that are about no deployment that runs."""
OF_THE_CONSOLE_ALONE = {"GET /me"}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The API's OpenAPI description."""
    context = context_over(Played(0))
    context.collector.stop()
    found: dict[str, Any] = application(context)._app.openapi()  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def calls(described: dict[str, Any]) -> set[str]:
    return {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in described["paths"].items()
        for method in methods
    }


def commands() -> Iterator[str]:
    """The commands of `ray-canal`, those of groups and the actions of `subscriber` by two words."""
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        if name == "subscriber":
            below = [action.value for action in Action]
        yield from [f"{name} {each}" for each in below] if below else [name]


def test_every_command_has_its_call(calls: set[str]) -> None:
    assert set(commands()) == REST_OF.keys() | IN_THE_CALLERS_PROCESS.keys()
    named = set.union(*REST_OF.values()) | OF_THE_CONSOLE_ALONE
    assert named == calls


def test_every_action_is_one_of_the_call(described: dict[str, Any]) -> None:
    def actions(path: str) -> set[str]:
        parameters = described["paths"][f"/api/v1{path}"]["post"]["parameters"]
        (found,) = (each["schema"]["enum"] for each in parameters if each["name"] == "action")
        return set(found)

    assert actions(f"{CLIENT}/{{action}}") == {a.value for a in Action} - {"show", "remove"}
    assert actions(f"{CLIENT}/snapshot/{{action}}") == {"pause", "resume", "cancel"}
    assert actions(f"{ONE}/sinks/{{name}}/{{action}}") == {"stop", "pause", "resume", "seek"}


class _Recorded(ConsoleClient):
    """Notes what it would ask, and takes what fits any call for an answer."""

    def __init__(self) -> None:
        super().__init__("http://nowhere")
        self.asked: set[str] = set()

    def _open(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Any:
        self.asked.add(f"{method} {path.removeprefix('/api/v1')}")
        if path.endswith(("/tail", "/rows")):
            return io.BytesIO(b"")
        return io.BytesIO(json.dumps({"released": 1}).encode())


GIVEN: dict[str, list[tuple[Any, ...]]] = {
    "operate": [("d", 7, "pause")],
    "steer_snapshot": [("d", 7, "pause")],
    "steer_sink": [("d", "s", "pause")],
    "sinks": [(), ("d",)],
    "deployment": [
        (each, "") for each in ("check", "plan", "apply", "sinks", "sinks/start", "import-meta")
    ],
}
"""Arguments of the client's methods, where an empty text or 7 is none."""


def test_the_client_has_every_call(calls: set[str]) -> None:
    client = _Recorded()
    for name, method in inspect.getmembers(client, inspect.ismethod):
        if name.startswith("_") or name == "call":
            continue
        needed = [
            7 if each.name == "client_id" else "d"
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        for given in GIVEN.get(name, [tuple(needed)]):
            found = method(*given)
            if inspect.isgenerator(found):
                list(found)
    unknown = {each for each in client.asked if _template(each, calls) is None}
    assert unknown == set()
    assert {_template(each, calls) for each in client.asked} == calls


def _template(asked: str, calls: set[str]) -> str | None:
    """The call that a request is of: the one with the fewest places that are filled in."""
    fits = [each for each in calls if re.fullmatch(re.sub(r"{\w+}", "[^/]+", each), asked)]
    return min(fits, key=lambda each: each.count("{"), default=None)
