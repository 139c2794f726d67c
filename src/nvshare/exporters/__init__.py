"""Exporters: one package per port, in it one file per subject that yields families from one view."""
