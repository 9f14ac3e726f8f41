"""The shells: they perform the commands of the pure core."""
