"""Whose headers are believed, and which role a name or group has."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from ray_canal.config.console import ProxyConfig
from ray_canal.console.proxy import Proxy
from ray_canal.errors import AccessDenied

ROLES = [
    {"users": ["ada@*"], "rights": ["admin"]},
    {"groups": ["cdc-*"], "rights": ["subscribe"], "destinations": ["shop-*"]},
    {"groups": ["staff"], "users": ["*@example.com"], "rights": ["read"]},
]


def proxy(**more: Any) -> Proxy:
    return Proxy(
        ProxyConfig.model_validate({"addresses": ["10.1.0.0/16", "::1"], "role": ROLES, **more})
    )


def headers(user: str, groups: str = "", **more: str) -> Headers:
    return Headers({"x-forwarded-user": user, "x-forwarded-groups": groups, **more})


def test_the_first_role_that_fits_counts() -> None:
    ada = proxy().user("10.1.2.3", headers("ada@example.com", "staff"))
    assert ada is not None
    assert ada.may("admin")
    otto = proxy().user("::1", headers("otto@example.com", "staff, cdc-team"))
    assert otto is not None
    assert otto.destinations == ("shop-*",)
    assert not otto.may("admin")
    vera = proxy().user("::ffff:10.1.2.3", headers("vera@example.com", "staff"))
    assert vera is not None
    assert vera.rights == {"read"}


@pytest.mark.parametrize("groups", ["", "others", "staffing"])
def test_who_has_no_role_is_refused(groups: str) -> None:
    with pytest.raises(AccessDenied, match=r"eve@example.com \(groups: .*\) has no role"):
        proxy().user("10.1.2.3", headers("eve@example.com", groups))


@pytest.mark.parametrize("peer", ["10.2.0.1", "127.0.0.1", "", "testclient"])
def test_the_same_headers_from_elsewhere_are_not_read(peer: str) -> None:
    assert proxy().user(peer, headers("ada@example.com")) is None


def test_a_secret_proves_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_SECRET", "hush")
    known = proxy(secret="env:PROXY_SECRET")
    assert known.user("::1", headers("ada@example.com")) is None
    wrong = headers("ada@example.com", **{"x-ray-canal-proxy": "hus"})
    assert known.user("::1", wrong) is None
    right = headers("ada@example.com", **{"x-ray-canal-proxy": "hush"})
    found = known.user("::1", right)
    assert found is not None
    assert found.name == "ada@example.com"


def test_a_request_without_a_name_is_of_somebody_who_has_to_log_in() -> None:
    assert proxy().user("::1", headers(" ", "cdc-team")) is None
