"""How an exporter reaches the API server, if it is to: the same for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nvshare.core.settings import Choice
from nvshare.gpu.reading import SourceState
from nvshare.runtime.errors import StartError
from nvshare.runtime.settings import Setting

if TYPE_CHECKING:
    from nvshare.pods.kubernetes.credentials import Credentials
    from nvshare.pods.kubernetes.reflection import SourceFigures

KUBERNETES: Final = "kubernetes"
SETTING: Final = Setting(
    "NVSHARE_KUBERNETES",
    "auto",
    Choice(("auto", "on", "off")),
    "whether the API server is asked: auto if this is a pod of a cluster; on elsewhere uses KUBECONFIG",
)


def credentials_for(wish: str, environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """None if the API server is not to be asked. Raises StartError."""
    if wish == "off":
        return None
    from nvshare.pods.kubernetes.credentials import find_credentials, is_in_cluster
    from nvshare.pods.kubernetes.kubeconfig import AccessError

    if wish == "auto" and not is_in_cluster(environment):
        return None
    try:
        credentials = find_credentials(environment)
        credentials.tls()
    except AccessError as error:
        raise StartError(f"NVSHARE_KUBERNETES={wish}, but {error}; or use --kubernetes off") from error
    return credentials


def state_of(figures: SourceFigures) -> SourceState:
    return SourceState(figures.up, 0, figures.failures, figures.current_ns)


def told(log: Callable[..., None], source: str, figures: SourceFigures) -> None:
    """One line when a source goes up or down."""
    if figures.up:
        log("the API server answers", source=source)
    else:
        log("the API server does not answer: what it said last is shown", source=source, why=figures.why)
