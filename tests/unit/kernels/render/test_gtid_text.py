"""GTIDs as text against Python's own formatting."""

from __future__ import annotations

import itertools
import random
import uuid

import numpy as np

from ray_canal.binlog.chunk import GTID, GTID_ANONYMOUS, GTID_MARIADB, GTID_MYSQL
from ray_canal.kernels.render.gtid_text import GTID_TEXT_BYTES_MAX, gtid_texts


def test_texts() -> None:
    rng = random.Random(4)
    records = np.zeros(500, GTID)
    expected = []
    for record in records:
        record["flavor"] = rng.choice((GTID_ANONYMOUS, GTID_MYSQL, GTID_MARIADB))
        record["sid"] = np.frombuffer(rng.randbytes(16), np.uint8)
        record["gno"] = rng.choice((1, 9, 10, 99, 100, 2**63 - 1, rng.getrandbits(40)))
        record["tag"] = rng.choice((b"", b"t", b"x" * 32))
        record["domain"], record["server_id"] = rng.choice((0, 2**32 - 1)), rng.getrandbits(31)
        number = int(record["gno"])
        if record["flavor"] == GTID_MYSQL:
            tag = record["tag"].decode()
            source = str(uuid.UUID(bytes=record["sid"].tobytes()))
            expected.append(":".join([source, *([tag] if tag else []), str(number)]))
        elif record["flavor"] == GTID_MARIADB:
            expected.append(f"{record['domain']}-{record['server_id']}-{number}")
        else:
            expected.append("")
    data = records.view(np.uint8)
    data.flags.writeable = False
    offsets = np.zeros(4 * 501, np.uint8)
    out = np.zeros(GTID_TEXT_BYTES_MAX * 501, np.uint8)
    used = gtid_texts(data, offsets, out)
    ends = offsets.view("<i4").tolist()
    assert used == ends[-1]
    text = out[:used].tobytes().decode()
    found = [text[a:b] for a, b in itertools.pairwise(ends)]
    assert found == expected
