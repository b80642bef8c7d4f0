"""Settings, and what is set while a client is started."""

import logging
import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from engram.compat.dataclay.runtime import Runtime, begin, current

session_var: ContextVar[dict[str, Any]] = ContextVar("session")
"""The session of the client that this context has started: dataset_name, username, token."""

exec_constraints_var: ContextVar[dict[str, Any]] = ContextVar(
    "exec_constraints",
    default={"max_threads": None, "max_memory": "1GB"},  # noqa: B039
)
"""Kept for programs that set it; methods run in their callers."""


@dataclass
class ClientSettings:
    """What a client is by default; from the environment, as dataClay names it."""

    dataclay_host: str | None = field(
        default_factory=lambda: os.environ.get("ENGRAM_POOL") or os.environ.get("DC_HOST")
    )
    dataclay_port: int = 16587
    username: str = field(default_factory=lambda: os.environ.get("DC_USERNAME", "admin"))
    password: str = field(default_factory=lambda: os.environ.get("DC_PASSWORD", "admin"))
    dataset: str = field(default_factory=lambda: os.environ.get("DC_DATASET", "admin"))
    local_backend: str | None = None
    proxy_enabled: bool = False
    proxy_host: str = "127.0.0.1"
    proxy_port: int = 8676


@dataclass
class Settings:
    """What dataClay's services are told; kept for programs that look, nothing here reads it."""

    client: ClientSettings = field(default_factory=ClientSettings)
    storage_path: str = "/data/storage/"
    ephemeral: bool = False
    loglevel: str = "INFO"


settings = Settings()


def get_runtime() -> Runtime | None:
    """Give the runtime of the client that was started last; None if none is."""
    return current()


def set_runtime(new_runtime: Runtime) -> None:
    """Use a runtime from now on."""
    begin(new_runtime)


def logger_config(**kwargs: Any) -> None:
    """Configure logging, as `logging.basicConfig`."""
    logging.basicConfig(**kwargs)
