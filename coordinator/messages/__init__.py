"""The one place that turns messages into the domain's values and back: a module for each service, one for settings."""
