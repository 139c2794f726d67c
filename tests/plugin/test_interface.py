"""The messages and services are the kubelet's, field by field: names, numbers, types."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor

from nvshare.pods.kubelet import device_plugin_pb2, pod_resources_pb2
from nvshare.pods.kubelet.interface import method_path

# As the kubelet's own definition has them: name=number type; [] repeated.
DEVICE_PLUGIN: Final = """
Empty:
RegisterRequest: version=1 string, endpoint=2 string, resource_name=3 string, options=4 DevicePluginOptions
DevicePluginOptions: pre_start_required=1 bool, get_preferred_allocation_available=2 bool
ListAndWatchResponse: devices=1 Device[]
Device: ID=1 string, health=2 string, topology=3 TopologyInfo
TopologyInfo: nodes=1 NUMANode[]
NUMANode: ID=1 int64
PreferredAllocationRequest: container_requests=1 ContainerPreferredAllocationRequest[]
ContainerPreferredAllocationRequest: available_deviceIDs=1 string[], must_include_deviceIDs=2 string[], \
allocation_size=3 int32
PreferredAllocationResponse: container_responses=1 ContainerPreferredAllocationResponse[]
ContainerPreferredAllocationResponse: deviceIDs=1 string[]
AllocateRequest: container_requests=1 ContainerAllocateRequest[]
ContainerAllocateRequest: devices_ids=1 string[]
AllocateResponse: container_responses=1 ContainerAllocateResponse[]
ContainerAllocateResponse: envs=1 map<string,string>, mounts=2 Mount[], devices=3 DeviceSpec[], \
annotations=4 map<string,string>, cdi_devices=5 CDIDevice[]
Mount: container_path=1 string, host_path=2 string, read_only=3 bool
DeviceSpec: container_path=1 string, host_path=2 string, permissions=3 string
CDIDevice: name=1 string
PreStartContainerRequest: devices_ids=1 string[]
PreStartContainerResponse:
"""
POD_RESOURCES: Final = """
ListPodResourcesRequest:
ListPodResourcesResponse: pod_resources=1 PodResources[]
PodResources: name=1 string, namespace=2 string, containers=3 ContainerResources[], cpu_ids=4 int64[], \
memory=5 ContainerMemory[]
ContainerResources: name=1 string, devices=2 ContainerDevices[], cpu_ids=3 int64[], \
memory=4 ContainerMemory[], dynamic_resources=5 DynamicResource[]
ContainerDevices: resource_name=1 string, device_ids=2 string[], topology=3 TopologyInfo
ContainerMemory: memory_type=1 string, size=2 uint64, topology=3 TopologyInfo
DynamicResource:
TopologyInfo: nodes=1 NUMANode[]
NUMANode: ID=1 int64
AllocatableResourcesRequest:
AllocatableResourcesResponse: devices=1 ContainerDevices[], cpu_ids=2 int64[], memory=3 ContainerMemory[]
GetPodResourcesRequest: pod_name=1 string, pod_namespace=2 string
GetPodResourcesResponse: pod_resources=1 PodResources
"""
SERVICES: Final = """
/v1beta1.Registration/Register RegisterRequest -> Empty
/v1beta1.DevicePlugin/GetDevicePluginOptions Empty -> DevicePluginOptions
/v1beta1.DevicePlugin/ListAndWatch Empty -> stream ListAndWatchResponse
/v1beta1.DevicePlugin/GetPreferredAllocation PreferredAllocationRequest -> PreferredAllocationResponse
/v1beta1.DevicePlugin/Allocate AllocateRequest -> AllocateResponse
/v1beta1.DevicePlugin/PreStartContainer PreStartContainerRequest -> PreStartContainerResponse
/v1.PodResourcesLister/List ListPodResourcesRequest -> ListPodResourcesResponse
/v1.PodResourcesLister/GetAllocatableResources AllocatableResourcesRequest -> AllocatableResourcesResponse
/v1.PodResourcesLister/Get GetPodResourcesRequest -> GetPodResourcesResponse
"""
SCALARS: Final = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def kind(field: Any) -> str:
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return SCALARS[field.type] + ("[]" if field.is_repeated else "")
    if field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return f"map<{kind(entry['key'])},{kind(entry['value'])}>"
    return str(field.message_type.name) + ("[]" if field.is_repeated else "")


def described(module: Any) -> dict[str, list[str]]:
    return {
        name: [f"{field.name}={field.number} {kind(field)}" for field in message.fields]
        for name, message in module.DESCRIPTOR.message_types_by_name.items()
    }


def table(text: str) -> dict[str, list[str]]:
    rows = (line.partition(":") for line in text.strip().splitlines())
    return {name: re.findall(r"\w+=\d+ (?:map<[^>]*>|[\w\[\]]+)", fields) for name, _, fields in rows}


@pytest.mark.parametrize(
    ("module", "text"), [(device_plugin_pb2, DEVICE_PLUGIN), (pod_resources_pb2, POD_RESOURCES)]
)
def test_messages_have_the_kubelets_fields(module: Any, text: str) -> None:
    assert described(module) == table(text)
    assert sum(map(len, table(text).values())) == text.count("="), "the table is read whole"


def test_services_have_the_kubelets_methods() -> None:
    found = [
        f"{method_path(method)} {method.input_type.name} -> "
        + ("stream " if method.server_streaming else "")
        + method.output_type.name
        for module in (device_plugin_pb2, pod_resources_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    assert sorted(found) == sorted(SERVICES.strip().splitlines())
