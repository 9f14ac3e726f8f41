# generated from src/pairbus/pairing/_async/__init__.py by tools/gen_unasync.py; edit that one
"""The shells: what the pure core decides is done here."""
