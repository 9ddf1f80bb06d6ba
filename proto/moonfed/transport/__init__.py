"""Connections to a coordinator: channels, identities, retries, and checks of replies."""
