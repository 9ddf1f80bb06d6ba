"""Values that devices exchange with a coordinator, and their messages."""
