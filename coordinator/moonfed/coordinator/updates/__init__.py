"""An update's way from its first byte to its receipt: admission, transfer, checks, quota, group commit."""
