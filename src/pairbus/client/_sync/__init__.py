# generated from src/pairbus/client/_async/__init__.py by tools/gen_unasync.py; edit that one
"""The bulk client, written once: `_sync` is generated from here."""
