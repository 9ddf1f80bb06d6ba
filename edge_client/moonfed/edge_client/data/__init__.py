"""A device's samples between the data layer and the trainer: cache and holdout."""
