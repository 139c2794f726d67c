"""HAMi's formats: the region that its library shares with whoever maps its file, and the annotations of its
scheduler and device plugin.

Pure: bytes and texts in, values out. Nothing here opens, writes or deletes a file.
"""
