"""Child: mysql-event-stream's CdcStream reads rows: python event_stream.py PORT ROWS WARM_ROWS"""

from __future__ import annotations

import asyncio
import sys

from mysql_event_stream import CdcStream  # type: ignore[import-not-found]
from saying import say, until_told  # type: ignore[import-not-found]  # a script beside it


async def main(port: int, wanted: int, warm: int) -> None:
    rows = 0
    say("ready", 0)
    async with CdcStream(
        host="127.0.0.1",
        port=port,
        user="root",
        password="",
        server_id=4_000_006,
        start_binlog_file="mysql-bin.000001",
        start_binlog_position=4,
        ssl_mode=0,
    ) as stream:
        async for _ in stream:
            rows += 1
            if rows == warm:
                say("mark", rows)
            if rows >= wanted:
                say("end", rows)
                until_told()
                break


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
