"""[server]: Canal's TCP protocol."""

from __future__ import annotations

from pydantic import Field, model_validator

from ray_canal.config.section import Section


class ServerTlsConfig(Section):
    """TLS on the server's port: PEM files. With `ca`, clients must show a certificate of it."""

    cert: str = ""
    key: str = ""
    ca: str = ""


class ServerConfig(Section):
    """Canal's TCP protocol for all destinations of the cluster. Without this section, no port is
    opened."""

    host: str = "0.0.0.0"
    port: int = Field(11111, ge=0, le=65535)
    replicas: int = Field(1, ge=1, le=64)
    username: str = ""
    password: str = ""
    password_hash: str = ""  # in place of `password`: hex of SHA1(SHA1(password)), as canal.passwd
    login_timeout_s: float = Field(10.0, gt=0)
    idle_timeout_s: float = Field(3600.0, gt=0)
    stall_timeout_s: float = Field(60.0, gt=0)
    connections_max: int = Field(4096, ge=1)
    logins_max: int = Field(1024, ge=1)
    requests_max: int = Field(100, ge=1)
    packet_bytes_max: int = Field(1 << 20, ge=1 << 10)
    buffer_bytes_max: int = Field(256 << 20, ge=1 << 20)
    tls: ServerTlsConfig = ServerTlsConfig()

    @model_validator(mode="after")
    def _one_password(self) -> ServerConfig:
        if self.password and self.password_hash:
            raise ValueError("give `password` or `password_hash`, not both")
        if self.username and not (self.password or self.password_hash):
            raise ValueError("a `username` without a password lets everybody in; give a password")
        if (self.tls.key or self.tls.ca) and not self.tls.cert:
            raise ValueError("tls needs `cert`, a PEM file of the server's certificate")
        return self
