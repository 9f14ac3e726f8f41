# generated from src/pairbus/pairing/_async/__init__.py by tools/gen_unasync.py; edit that one
"""The shells: they perform the commands of the pure core."""
