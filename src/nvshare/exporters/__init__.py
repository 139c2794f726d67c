"""Exporters: one file a subject, each a generator of families from one view."""
