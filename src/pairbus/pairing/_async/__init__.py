"""The shells: they carry out the commands of the pure core."""
