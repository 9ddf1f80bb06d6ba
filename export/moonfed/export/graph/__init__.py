"""The exporter of operator graphs: tracing a training plan, and writing the container that devices read."""
