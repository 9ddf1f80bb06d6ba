"""The pure core of a run: settings, events, state, both state machines, retention and status text."""
