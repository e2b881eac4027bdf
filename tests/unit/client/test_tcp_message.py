"""Messages over Canal's protocol: entries as they came, and no Arrow."""

from __future__ import annotations

import pytest

from ray_canal.client.tcp_message import TcpHead, TcpMessage
from ray_canal.demo import binlog_files
from ray_canal.errors import ConsumerError
from ray_canal.offline import decode_chunks
from ray_canal.views.entries import render_entries
from tests.golden import split_delimited


def test_entries_rows_and_bytes_are_those_that_came() -> None:
    info, chunk = max(decode_chunks(binlog_files()[:1]), key=lambda one: len(one[0].entries))
    rendered = render_entries(chunk, 0, len(info.entries))
    raw = tuple(bytes(rendered[i]) for i in range(len(rendered)))
    message = TcpMessage(TcpHead(1, 0, entry_count=len(raw), raw=raw), lambda _: [])
    places = [entry.header.logfileOffset for entry in message.entries]
    assert places == info.entries["position"].tolist()
    assert list(split_delimited(b"".join(message.entry_pieces))) == list(raw)
    assert message.row_count == int(info.entries["rows"].sum()) > 0
    with pytest.raises(ConsumerError, match="connect by Ray or Arrow Flight"):
        _ = message.chunks
