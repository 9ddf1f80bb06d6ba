"""Several coordinators on one PostgreSQL database: each run is driven by one of them and followed by the others."""
