# generated from src/pairbus/runtime/_async/__init__.py by tools/gen_unasync.py; edit that one
