"""The tables and figures of the papers that moonfed implements, as recipes that anyone can run."""
