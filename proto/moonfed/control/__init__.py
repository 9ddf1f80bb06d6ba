"""Values that operators' programs exchange with a coordinator."""
