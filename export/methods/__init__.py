"""The local objectives, one module each."""
