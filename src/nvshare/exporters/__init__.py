"""Exporters: one file per subject, each a generator of families from one view."""
