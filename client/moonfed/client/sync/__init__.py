"""The synchronous client: `tools/generate_client.py` makes it from the asynchronous one, except `channel.py`."""
