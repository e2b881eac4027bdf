"""The generated messages run with every protobuf that a user's environment may have."""

from __future__ import annotations

import inspect

from ray_canal.canal.generated import CanalProtocol_pb2 as packets
from ray_canal.canal.generated import EntryProtocol_pb2 as pb


def test_no_runtime_is_refused() -> None:
    """protoc 26 and later write a check that refuses other major versions of protobuf."""
    for module in (pb, packets):
        assert "ValidateProtobufRuntimeVersion" not in inspect.getsource(module)


def test_fields_have_canals_numbers() -> None:
    header = {f.name: f.number for f in pb.Header.DESCRIPTOR.fields}
    assert header["eventType"] == 11
    assert (header["props"], header["gtid"]) == (12, 13)
    change = {f.name: f.number for f in pb.RowChange.DESCRIPTOR.fields}
    assert (change["isDdl"], change["rowDatas"], change["ddlSchemaName"]) == (10, 12, 14)
    assert pb.DESCRIPTOR.package == "com.alibaba.otter.canal.protocol"
