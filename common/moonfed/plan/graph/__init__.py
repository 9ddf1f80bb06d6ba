"""Plans whose steps are graphs of operators, as data: graph/1."""
