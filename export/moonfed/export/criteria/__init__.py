"""The torch halves of the tasks, which plans compile: loss, sums for evaluation, and output."""
