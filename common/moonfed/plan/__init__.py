"""Plans: their interface, their operators, and the inspection before they are loaded."""
