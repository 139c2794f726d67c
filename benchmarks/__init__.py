"""Measurements beside a contender; `make bench` runs them."""
