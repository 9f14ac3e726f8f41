"""The shells: what the pure core decides is done here."""
