"""A double of the Kubernetes API server: HTTPS, lists, watches, patches, and faults at every point.

>>> with KubeApi(directory, nodes=("n1",)) as api:                              # doctest: +SKIP
...     api.create("pods", pod("p0", node="n1"))
...     environment = {"KUBECONFIG": str(api.kubeconfig())}
...     api.annotate("p0", gpu_core_limit="30")
...     api.fault(Point.BETWEEN_EVENTS, Fault.CUT, operation="watch", times=1)

resources     the kinds of objects, one row each
store         objects, versions, history; objects: what becomes of what is written; patches, selectors
service       from a request to its answer; lists, watches, access
server        the port and TLS; connection: HTTP and the faults; certificates, credentials
faults        what goes wrong, and where
handle        telling it what to do, by the commands
"""

from nvshare.sim.kube_api.commands import CommandError
from nvshare.sim.kube_api.faults import Fault, Point, combinations
from nvshare.sim.kube_api.handle import Handle, KubeApi, KubeApiProcess
from nvshare.sim.kube_api.samples import pod

__all__ = ["CommandError", "Fault", "Handle", "KubeApi", "KubeApiProcess", "Point", "combinations", "pod"]
