"""What the Kubernetes API server says: which pods run on this node, and what they may use.

Pure: ``objects`` (what is kept of an object), ``list_watch`` (what to ask next), ``limit_annotations``
(limits in annotations), ``pod_directory`` (what is known of pods and namespaces). Files and sockets:
``kubeconfig``, ``exec_credentials``, ``credentials``, ``api_client``. Threads: ``reflector`` (keeps one kind
of object up to date, and reports in the words of ``reflection``), ``warning_events`` (Warning events on
pods), ``pod_source`` (all of it for the pods of one node).

Nothing in here is imported unless Kubernetes is switched on.
"""
