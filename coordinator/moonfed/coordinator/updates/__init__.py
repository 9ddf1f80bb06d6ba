"""An update's path from its first byte to its receipt: admission, transfer, checks, quota, group commit."""
