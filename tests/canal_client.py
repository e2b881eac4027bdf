"""Canal's protocol from the client's side, packet by packet, for tests: it may also misbehave."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.scramble import scramble411


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seed = b""
        self.patience_s = 60.0

    @classmethod
    async def open(cls, port: int, **options: Any) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20, **options)
        client = cls(reader, writer)
        handshake = packets.parsed(pb.Handshake, (await client.read()).body)
        client.seed = handshake.seeds
        return client

    @classmethod
    async def logged_in(cls, port: int, **options: Any) -> RawClient:
        client = await cls.open(port, **options)
        await client.log_in()
        return client

    async def log_in(self, username: str = "", password: str | None = None, **fields: Any) -> Any:
        answer = b"" if password is None else scramble411(password, self.seed).hex().encode()
        self.send(
            pb.CLIENTAUTHENTICATION, pb.ClientAuth(username=username, password=answer, **fields)
        )
        return await self.ack()

    def send(self, kind: int, body: Any = None) -> None:
        self.writer.write(packets.framed(kind, body))

    async def frame(self) -> bytes:
        head = await asyncio.wait_for(self.reader.readexactly(4), self.patience_s)
        (size,) = struct.unpack(">i", head)
        return await asyncio.wait_for(self.reader.readexactly(size), self.patience_s)

    async def read(self) -> Any:
        return packets.parsed_packet(await self.frame())

    async def ack(self) -> Any:
        packet = await self.read()
        assert packet.type == pb.ACK, packet
        return packets.parsed(pb.Ack, packet.body)

    async def messages(self) -> Any:
        packet = await self.read()
        assert packet.type == pb.MESSAGES, packets.parsed(pb.Ack, packet.body)
        return packets.parsed(pb.Messages, packet.body)

    async def subscribe(self, destination: str, client_id: str = "1001", text: str = "") -> Any:
        """As the Java client and canal-python do: a rollback, then the subscription."""
        self.send(
            pb.CLIENTROLLBACK, pb.ClientRollback(destination=destination, client_id=client_id)
        )
        self.send(
            pb.SUBSCRIPTION, pb.Sub(destination=destination, client_id=client_id, filter=text)
        )
        return await self.ack()

    def ask(self, destination: str, client_id: str = "1001", **fields: Any) -> None:
        fields = {"fetch_size": 1000, "timeout": -1, "unit": 2, **fields}
        self.send(pb.GET, pb.Get(destination=destination, client_id=client_id, **fields))

    async def get(self, destination: str, client_id: str = "1001", **fields: Any) -> Any:
        self.ask(destination, client_id, **fields)
        return await self.messages()

    def confirm(self, destination: str, batch_id: int, client_id: str = "1001") -> None:
        self.send(
            pb.CLIENTACK,
            pb.ClientAck(destination=destination, client_id=client_id, batch_id=batch_id),
        )

    def roll_back(
        self, destination: str, batch_id: int | None = None, client_id: str = "1001"
    ) -> None:
        body = pb.ClientRollback(
            destination=destination, client_id=client_id, batch_id=batch_id or 0
        )
        self.send(pb.CLIENTROLLBACK, body)

    async def ended(self) -> bool:
        """Whether the server closes within ten seconds; what it still sends is read over."""
        try:
            await asyncio.wait_for(self.reader.read(), 60)
        except ConnectionError:
            pass
        except asyncio.TimeoutError:
            return False
        await self.close()
        return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return
