"""An entry cut into its rows is, row by row, what protobuf makes of it."""

from __future__ import annotations

import numpy as np

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.demo import binlog_files
from ray_canal.kernels.render import entry_split as kernel
from ray_canal.offline import decode_chunks
from ray_canal.views.entries import render_entries


def test_rows_alone_have_all_else_of_their_entry() -> None:
    info, chunk = max(decode_chunks(binlog_files()[:1]), key=lambda one: len(one[0].entries))
    whole = render_entries(chunk, 0, len(info.entries))
    count, rows = len(whole), int(info.entries["rows"].sum())
    heads = np.zeros((count, kernel.HEAD_FIELDS), np.int64)
    bounds, firsts = np.zeros((rows, 2), np.int64), np.zeros(count, np.int64)
    kernel.find_rows(whole.buffer, whole.offsets, heads, bounds, firsts)
    owners, numbers, wanted = [], [], []
    for i in range(count):
        entry = pb.Entry.FromString(bytes(whole[i]))
        if entry.entryType != pb.ROWDATA or not (
            found := pb.RowChange.FromString(entry.storeValue).rowDatas
        ):
            owners.append(i)
            numbers.append(-1)
            wanted.append(entry)
            continue
        for k, row in enumerate(found):
            change = pb.RowChange.FromString(entry.storeValue)
            del change.rowDatas[:]
            change.rowDatas.append(row)
            one = pb.Entry.FromString(bytes(whole[i]))
            one.storeValue = change.SerializeToString()
            owners.append(i)
            numbers.append(int(firsts[i]) + k)
            wanted.append(one)
    assert len(wanted) > count
    room = len(wanted) * (max(np.diff(whole.offsets)) + kernel.STORE_HEAD_BYTES_MAX)
    out, ends = np.zeros(room, np.uint8), np.zeros(len(wanted) + 1, np.int64)
    kernel.write_rows(
        whole.buffer, whole.offsets, heads, np.array(owners), np.array(numbers), bounds, out, ends
    )
    for k, entry in enumerate(wanted):
        made = pb.Entry.FromString(out[ends[k] : ends[k + 1]].tobytes())
        assert made.header == entry.header
        assert pb.RowChange.FromString(made.storeValue) == pb.RowChange.FromString(entry.storeValue)
