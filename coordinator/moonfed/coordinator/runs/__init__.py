"""The runs of a coordinator: started, driven round by round, resumed, published and ended."""
