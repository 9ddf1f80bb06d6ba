"""The inference protocol on HTTP: endpoints, bodies, and limits on connections."""
