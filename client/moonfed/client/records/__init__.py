"""Values that the client returns: frozen dataclasses, of which `pandas.DataFrame` accepts lists."""
