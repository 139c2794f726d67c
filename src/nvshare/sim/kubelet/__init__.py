"""A double of the kubelet, as far as device plugins and readers of pod resources see it."""

from nvshare.sim.kubelet.device_manager import AdmissionError, StartRefusedError
from nvshare.sim.kubelet.kubelet import SimulatedKubelet
from nvshare.sim.kubelet.pods import ContainerOptions, PodRequest

__all__ = ["AdmissionError", "ContainerOptions", "PodRequest", "SimulatedKubelet", "StartRefusedError"]
