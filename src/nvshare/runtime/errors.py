"""Why a daemon does not start."""

from __future__ import annotations


class StartError(Exception):
    """The daemon cannot start with these settings."""


class InUse(Exception):  # noqa: N818 - not an error of this daemon's
    """Another daemon already uses what this one needs."""
