"""Types that operators and a coordinator exchange, each used at both ends."""
