"""The kubelet's interfaces: what its device manager asks of a plugin, and which devices its pods hold.

``device_plugin.proto`` and ``pod_resources.proto`` describe them. ``make`` and the build of the package make
a module of messages from each (``device_plugin_pb2``, ``pod_resources_pb2``); those are not in the
repository."""
