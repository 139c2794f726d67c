"""Where a daemon's HTTP port listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nvshare.runtime.endpoints import listen_tcp
from tests.exporters.node import free_port


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1:", "127.0.0.1"), ("localhost:", "127.0.0.1"), ("", "0.0.0.0")]
)
def test_where_to_listen(host: str, shown: str) -> None:
    port = free_port()
    listening = listen_tcp(f"{host}{port}")
    assert listening.getsockname()[:2] == (shown, port)
    listening.close()


def test_listening_by_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        with pytest.raises(OSError):  # noqa: PT011 - whatever the kernel says
            listen_tcp(f"[::1]:{free_port()}")
        return
    listening = listen_tcp(f"[::1]:{free_port()}")
    assert listening.family is socket.AF_INET6
    listening.close()
