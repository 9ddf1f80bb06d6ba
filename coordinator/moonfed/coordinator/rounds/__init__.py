"""The pure core of a run: settings, events, state, the state machine, and sentences about them."""
