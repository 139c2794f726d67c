"""Python client of the daemon, for programs without our library: ``with client.gpu(): ...``."""

from nvshare.client.aio import AsyncClient
from nvshare.client.errors import ClientRefused
from nvshare.client.sync import Client

__all__ = ["AsyncClient", "Client", "ClientRefused"]
