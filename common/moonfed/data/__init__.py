"""The data layer: every command reads samples here, from images, arrays, tables or a user's function."""
