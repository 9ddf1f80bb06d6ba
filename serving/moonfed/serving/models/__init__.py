"""The models, without a protocol: loading and versions, what a request must be, batches and sessions."""
