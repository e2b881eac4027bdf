"""REST calls about a whole deployment: nodes, sinks, and what the text of a canal.toml says.

A configuration names files of the console's machine, so it is taken from an admin of all
destinations who has logged in, and from nobody where no password is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ray_canal.config import CanalConfig
from ray_canal.console.access import Visitor
from ray_canal.console.context import Changer, ConsoleContext, Reader, TheContext
from ray_canal.console.deployments import checks, imported, listed_sinks, parsed
from ray_canal.errors import AccessDenied

router = APIRouter(prefix="/api/v1")

_APPLY_LIMIT_S = 600.0


class DeploymentBody(BaseModel):
    """A canal.toml as text. Relative paths are taken from the console's folder of sources."""

    model_config = ConfigDict(extra="forbid")
    toml: str = Field(max_length=1 << 20)


class Applied(DeploymentBody):
    """`remove`: stop what runs and is not in it."""

    remove: bool = False


class NamedSinks(DeploymentBody):
    """`names`: of its sinks; none: all."""

    names: list[str] = Field(default_factory=list)


class CanalCursors(DeploymentBody):
    """The text of Canal's meta.dat, and how to take it over (`ray-canal import-meta`)."""

    meta_dat: str = Field(max_length=1 << 20)
    destination: str = ""
    replace: bool = False
    server_uuid: str = ""
    unchecked: bool = False


@router.get("/nodes")
async def nodes(context: TheContext, visitor: Reader) -> list[dict[str, Any]]:
    """Each node of the cluster, the destinations that run there and what they take."""
    visitor.refuse_without("read")
    return await context.call(context.cluster.nodes)


@router.get("/sinks")
async def sinks(context: TheContext, visitor: Reader) -> dict[str, dict[str, Any]]:
    """The sinks that run, by name: state, rows, place, error."""
    return {
        name: told
        for known in context.visible(visitor)
        for name, told in context.collector.sinks_of(known.name).items()
    }


@router.post("/deployment/check")
async def check(
    body: DeploymentBody, context: TheContext, visitor: Changer
) -> dict[str, list[dict[str, Any]]]:
    """Check the sources of a configuration: settings, grants, reachability."""
    config = _config(context, visitor, body)
    return await context.call(checks, config)


@router.post("/deployment/plan")
async def plan(body: DeploymentBody, context: TheContext, visitor: Changer) -> dict[str, Any]:
    """Return what `apply` would start, change, leave alone; nothing is changed."""
    config = _config(context, visitor, body)
    return await context.call(context.cluster.plan, config)


@router.post("/deployment/apply")
async def apply(body: Applied, context: TheContext, visitor: Changer) -> dict[str, Any]:
    """Change what runs into what a configuration says (destinations, TCP port, Flight, sinks; not
    the console, which `ray-canal apply` opens again). Returns the plan that was carried out."""
    config = _config(context, visitor, body)

    def done() -> dict[str, Any]:
        return context.cluster.apply(config, remove=body.remove)

    return await context.change(visitor, "apply", _names(config), done, limit_s=_APPLY_LIMIT_S)


@router.post("/deployment/sinks")
async def sinks_of(
    body: DeploymentBody, context: TheContext, visitor: Changer
) -> list[dict[str, str]]:
    """The sinks of a configuration: destination, type, guarantee."""
    config = _config(context, visitor, body)
    return await context.call(listed_sinks, config)


@router.post("/deployment/sinks/start")
async def start_sinks(body: NamedSinks, context: TheContext, visitor: Changer) -> dict[str, Any]:
    """Start sinks of a configuration on the cluster; one that runs with it is left alone."""
    config = _config(context, visitor, body)

    def done() -> list[str]:
        return context.cluster.start_sinks(config, body.names)

    return {"started": await context.change(visitor, "start sinks", _names(config), done)}


@router.post("/deployment/import-meta")
async def import_canal_cursors(
    body: CanalCursors, context: TheContext, visitor: Changer
) -> dict[str, Any]:
    """Take over subscribers and cursors from Canal's meta.dat, before the first start."""
    config = _config(context, visitor, body)

    def done() -> dict[str, Any]:
        how = body.model_dump(include={"replace", "server_uuid", "unchecked"})
        return imported(config, body.meta_dat, body.destination, **how)

    return await context.change(visitor, "import cursors", body.destination, done)


def _config(context: ConsoleContext, visitor: Visitor, body: DeploymentBody) -> CanalConfig:
    """Raises AccessDenied; ConfigError."""
    visitor.refuse_without("admin")
    if not context.logins.asks:
        raise AccessDenied(
            "this console asks nobody for a password, so it takes no configuration: give it users "
            "([[console.user]]), or run the command on this machine"
        )
    return parsed(body.toml, _folder(context))


def _folder(context: ConsoleContext) -> Path:
    return Path(context.files.folder or Path(context.files.path).parent).resolve()


def _names(config: CanalConfig) -> str:
    return ", ".join(instance.destination for instance in config.instance)
