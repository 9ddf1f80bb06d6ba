"""The inference protocol on gRPC: service, messages, and limits on messages that are still on their way."""
