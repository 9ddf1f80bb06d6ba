"""The gRPC services: each method converts, calls the domain, converts back."""
