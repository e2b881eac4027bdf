"""The pages: rendered here from what the collector knows; our script refreshes parts of them."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from importlib import resources
from typing import Any, cast
from urllib.parse import parse_qs, quote

import anyio
import jinja2
from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from ray_canal.console import text
from ray_canal.console.access import Visitor
from ray_canal.console.alerts import problems
from ray_canal.console.cluster import Steer, SteerSink, SteerSnapshot
from ray_canal.console.context import COOKIE, FAILED_LOGIN_S, ConsoleContext, Reader, TheContext
from ray_canal.console.exposition import exposition
from ray_canal.console.first_source import FirstSource, check_first, start_first
from ray_canal.console.overview import limit, row, rows, stages, unfinished_first, why
from ray_canal.console.quarantine import Decoded, first_lines, shown_chunks, told_keys
from ray_canal.console.steering import (
    client_id_of,
    filtered,
    redriven,
    released,
    removed,
    sink_steered,
    snapshot_steered,
    steered,
    stopped,
)
from ray_canal.console.versions import versions
from ray_canal.errors import AccessDenied, CanalError, ConfigError, DecodeError

router = APIRouter(include_in_schema=False)

LINES_MAX = 20
"""Subscribers, and snapshots, on a destination's page: each has a form for what can be done."""
_FIELDS_MAX = 64
_PAGE_LIMIT_S = 15.0
"""For as long a browser waits for a page of a destination that does not answer."""
_PARTS = ("overview.html", "destination.html", "error.html")


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("ray_canal.console"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters.update(text.FILTERS)
    return found


def rendered(template: str, visitor: Visitor | None, **values: Any) -> str:
    """Return a page's HTML."""
    page = _templates().get_template(template)
    return page.render(visitor=visitor, version=assets_version(), **values)


def page(
    request: Request, template: str, visitor: Visitor | None, code: int = 200, **values: Any
) -> HTMLResponse:
    """Return a page; its inner part alone if the page's own script asks."""
    name = f"_{template}" if template in _PARTS and request.headers.get("x-part") else template
    return HTMLResponse(rendered(name, visitor, code=code, **values), code)


@functools.cache
def _assets() -> dict[str, bytes]:
    """Return the package's styles, scripts and pictures by file name, which a user may choose."""
    folder = resources.files("ray_canal.console") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@functools.cache
def assets_version() -> str:
    """Return a hash of the script and the style, which changes when they do."""
    both = _assets()["console.css"] + _assets()["console.js"]
    return hashlib.sha256(both).hexdigest()[:12]


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Return a style, script or picture of the package."""
    content = _assets().get(name)
    if content is None:
        return PlainTextResponse("not here\n", 404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers={"Cache-Control": "max-age=86400"})


@router.get("/healthz")
async def healthz() -> PlainTextResponse:
    """Say that the console runs; for probes."""
    return PlainTextResponse("ok\n")


@router.get("/metrics")
async def metrics(context: TheContext, visitor: Reader) -> PlainTextResponse:
    """Return the metrics of the destinations that the visitor may see, for Prometheus."""
    every = context.visible(visitor)
    sinks: dict[str, dict[str, Any]] = {}
    for known in every:
        sinks |= context.collector.sinks_of(known.name)
    body = exposition(every, sinks, canal_names=context.config.canal_metric_names)
    return PlainTextResponse(body, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/")
async def overview(request: Request, context: TheContext, visitor: Reader) -> Response:
    """Return the overview of all destinations."""
    shown = rows(context.visible(visitor))
    return page(
        request,
        "overview.html",
        visitor,
        rows=shown,
        wrong=[each for each in shown if each.problems],
        error=context.collector.error,
    )


@router.get("/destinations/{destination}")
async def destination(
    request: Request, destination: str, context: TheContext, visitor: Reader, first: int = 0
) -> Response:
    """Return the page of one destination, with its subscribers from the `first` on."""
    known = context.one(visitor, destination)
    first = max(first, 0)
    return page(
        request,
        "destination.html",
        visitor,
        known=known,
        status=known.status,
        subscribers=known.subscribers[first : first + LINES_MAX],
        first=first,
        lines_max=LINES_MAX,
        snapshots=unfinished_first(known.status)[:LINES_MAX],
        state=row(known).state,
        problems=problems(known),
        sinks=context.collector.sinks_of(destination),
        stages=stages(known.status),
        limit=limit(known.status),
        why=why(known),
        csrf=visitor.csrf,
    )


@router.get("/destinations/{destination}/tail")
async def tail_page(
    request: Request, destination: str, context: TheContext, visitor: Reader
) -> Response:
    """Return the page of the live tail."""
    known = context.one(visitor, destination)
    return page(request, "tail.html", visitor, known=known)


@router.get("/destinations/{destination}/schemas")
async def schemas(
    request: Request, destination: str, context: TheContext, visitor: Reader, table: str = ""
) -> Response:
    """Return the page of the tables' versions."""
    known = context.one(visitor, destination)
    call = context.cluster.schema_history
    found = await context.call(call, destination, table, limit_s=_PAGE_LIMIT_S)
    return page(
        request,
        "schemas.html",
        visitor,
        known=known,
        table=table,
        tables=found["tables"],
        versions=versions(found["changes"]),
    )


@router.get("/destinations/{destination}/quarantine")
async def quarantine(
    request: Request, destination: str, context: TheContext, visitor: Reader
) -> Response:
    """Return the page of what is in quarantine."""
    return await _quarantine_page(request, context, visitor, destination)


@router.post("/destinations/{destination}/quarantine")
async def redrive(
    request: Request, destination: str, context: TheContext, visitor: Reader
) -> Response:
    """Decode what is in quarantine, hand it over as a file, or remove it."""
    form = await _form(request, visitor)
    schema_sql, action = form.get("schema_sql", ""), form.get("action", "")
    if action == "release":
        await released(context, visitor, destination, form.get("keys", ""))
        return RedirectResponse(f"/destinations/{quote(destination)}/quarantine", 303)
    try:
        found = await redriven(context, visitor, destination, schema_sql)
    except (ConfigError, DecodeError) as error:
        told = str(error)
        return await _quarantine_page(
            request, context, visitor, destination, schema_sql=schema_sql, error=told
        )
    if action == "download":
        name = f"{destination}-quarantine.jsonl"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        text = "".join(line + "\n" for line in found.lines)
        return Response(text, media_type="application/x-ndjson", headers=headers)
    return await _quarantine_page(
        request, context, visitor, destination, schema_sql=schema_sql, found=found
    )


async def _quarantine_page(
    request: Request,
    context: ConsoleContext,
    visitor: Visitor,
    destination: str,
    *,
    schema_sql: str = "",
    error: str = "",
    found: Decoded | None = None,
) -> Response:
    known = context.one(visitor, destination)
    deployment = context.cluster.deployment
    chunks = await context.call(
        lambda: shown_chunks(deployment(destination), destination), limit_s=_PAGE_LIMIT_S
    )
    return page(
        request,
        "quarantine.html",
        visitor,
        400 if error else 200,
        known=known,
        chunks=chunks,
        schema_sql=schema_sql,
        error=error,
        found=found,
        shown="" if found is None else first_lines(found),
        keys="" if found is None else told_keys(found.keys),
        csrf=visitor.csrf,
    )


@router.post("/destinations/{destination}/change")
async def change(
    request: Request, destination: str, context: TheContext, visitor: Reader
) -> Response:
    """Carry out a button of the destination's page."""
    form = await _form(request, visitor)
    action = form.get("action", "")
    if action == "stop":
        await stopped(context, visitor, destination)
        return RedirectResponse("/", 303)
    if action == "remove":
        await removed(context, visitor, destination, _client_id(form))
    elif action == "filter":
        await filtered(context, visitor, destination, _client_id(form), form.get("tables", ""))
    elif action in ("pause-sink", "resume-sink"):
        which = cast(SteerSink, action.removesuffix("-sink"))
        await sink_steered(context, visitor, destination, form.get("sink", ""), which)
    elif action in ("pause-snapshot", "resume-snapshot", "cancel-snapshot"):
        how = cast(SteerSnapshot, action.removesuffix("-snapshot"))
        await snapshot_steered(context, visitor, destination, _client_id(form), how)
    elif action in ("pause", "resume", "seek"):
        client_id, to = _client_id(form), form.get("to", "")
        await steered(context, visitor, destination, client_id, cast(Steer, action), to)
    else:
        raise ConfigError(f"action: there is no {action[:40]!r}")
    return RedirectResponse(f"/destinations/{quote(destination)}", 303)


@router.get("/start")
async def start_page(request: Request, context: TheContext, visitor: Reader) -> Response:
    """Return the form of the first source."""
    return _start_page(request, context, visitor, {})


@router.post("/start")
async def start(request: Request, context: TheContext, visitor: Reader) -> Response:
    """Check a source, or start it."""
    form = await _form(request, visitor)
    visitor.refuse_without("admin")
    given = {key: form.get(key, "").strip() for key in FirstSource.model_fields}
    try:
        first = FirstSource(**{key: value for key, value in given.items() if value})
        if form.get("action") == "start":
            name = first.destination
            args = (context.cluster, context.files, first)
            await context.change(visitor, "start", name, lambda: start_first(*args))
            return RedirectResponse(f"/destinations/{quote(name)}", 303)
        results = await context.call(check_first, first)
    except ValidationError as error:
        wrong = "; ".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())
        return _start_page(request, context, visitor, given, status=400, error=wrong)
    except CanalError as error:
        return _start_page(request, context, visitor, given, status=400, error=str(error))
    return _start_page(request, context, visitor, given, results=results)


def _start_page(
    request: Request,
    context: ConsoleContext,
    visitor: Visitor,
    given: dict[str, str],
    *,
    status: int = 200,
    error: str = "",
    results: list[dict[str, Any]] | None = None,
) -> Response:
    """A password that was given goes back to the form: into the admin's own page alone."""
    return page(
        request,
        "start.html",
        visitor,
        status,
        given=given,
        results=results,
        ready=bool(results) and all(each["ok"] or each["advisory"] for each in results or ()),
        error=error,
        path=str(context.files),
        csrf=visitor.csrf,
    )


@router.get("/login")
async def login_page(request: Request, context: TheContext) -> Response:
    """Return the form of name and password."""
    if not context.logins.asks:
        return RedirectResponse("/", 303)
    return page(request, "login.html", None, wrong=False, by_password=context.logins.by_password)


@router.post("/login")
async def login(request: Request, context: TheContext) -> Response:
    """Begin a session."""
    form = _parsed(await request.body())
    name = form.get("username", "")
    token = context.logins.login(name, form.get("password", ""))
    if token is None:
        context.audit.tell(name, "failed login")
        await anyio.sleep(FAILED_LOGIN_S)
        by_password = context.logins.by_password
        return page(request, "login.html", None, 401, wrong=True, by_password=by_password)
    context.audit.tell(name, "login")
    answer = RedirectResponse("/", 303)
    secure = bool(context.config.tls.cert) or request.headers.get("x-forwarded-proto") == "https"
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
async def logout(request: Request, context: TheContext, visitor: Reader) -> Response:
    """End the session."""
    await _form(request, visitor)
    context.logins.logout(visitor.token)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


async def _form(request: Request, visitor: Visitor) -> dict[str, str]:
    """Raises AccessDenied: the form is not one of our pages'."""
    form = _parsed(await request.body())
    if not visitor.proves(form.get("csrf", "")):
        raise AccessDenied("the form has expired: open the page again, and send it again")
    return form


def _client_id(form: dict[str, str]) -> int:
    """Raises ConfigError: the form has none."""
    return client_id_of(form.get("client_id", ""))


def _parsed(body: bytes) -> dict[str, str]:
    """Raises ConfigError: it is no form of ours."""
    text = body.decode("utf-8", "replace")
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise ConfigError(f"the form cannot be read: {error}") from None
    return {key: values[0] for key, values in found.items()}
