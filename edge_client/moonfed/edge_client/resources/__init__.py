"""The device's hardware and memory, and what a round needs of them."""
