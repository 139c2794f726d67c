"""`nvshare monitor --profile vgpu`: the metrics of k8s-vgpu-monitor, on 8080."""
