"""Research: data sets, partitioners and the demo."""
