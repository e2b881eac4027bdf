"""A server's place in its cluster, which may go on without it: a node of a Galera cluster, or a
member of MySQL's group replication, that is cut off from the others, was expelled, or is not yet
among them. It may answer like a healthy server, and nothing new comes into its log."""

from __future__ import annotations

from collections.abc import Mapping

from ray_canal.errors import PrivilegeMissing
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import named_values

_KINDS_SQL = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('wsrep_on', 'wsrep_provider', 'group_replication_group_name')"
)
_GALERA_SQL = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN "
    "('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state_comment')"
)
_MEMBERS_SQL = (
    "SELECT MEMBER_ID = @@server_uuid AS is_own, MEMBER_STATE AS state"
    " FROM performance_schema.replication_group_members"
)


def why_apart(catalog: Catalog) -> str:
    """Return why a server is not in its cluster now; empty: it is, it is in none, or it does not
    tell (group replication's members: SELECT on performance_schema). Raises SourceError kinds."""
    settings = named_values(catalog.rows(_KINDS_SQL))
    if in_galera(settings):
        found = named_values(catalog.rows(_GALERA_SQL))
        if found.get("wsrep_ready") == "ON":
            return ""
        told = ", ".join(f"{name} is {value}" for name, value in sorted(found.items()))
        return f"it is a node of a Galera cluster that is not among the others: {told}"
    if settings.get("group_replication_group_name"):
        return _why_apart_of_group(catalog)
    return ""


def in_galera(variables: Mapping[str, str]) -> bool:
    """Return whether a server with these global variables is a node of a Galera cluster."""
    has_provider = variables.get("wsrep_provider", "").lower() not in ("", "none")
    return has_provider and variables.get("wsrep_on", "").upper() == "ON"


def _why_apart_of_group(catalog: Catalog) -> str:
    """MySQL Reference Manual, 20.4.2: a member's states. Who does not see most of the others waits
    for them with each commit."""
    try:
        members = catalog.rows(_MEMBERS_SQL)
    except PrivilegeMissing:
        return ""
    own = next((str(row["state"]) for row in members if row["is_own"]), "")
    if own in ("OFFLINE", "ERROR"):
        return f"it is {own} in its replication group"
    unseen = sum(row["state"] == "UNREACHABLE" for row in members)
    if 2 * unseen >= len(members) > 0:
        return f"it does not reach {unseen} of the {len(members)} members of its replication group"
    return ""
