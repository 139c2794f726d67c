"""Metrics: what there is (catalog), how it is written (exposition), how it is served (http)."""
