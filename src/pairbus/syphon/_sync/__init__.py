# generated from src/pairbus/syphon/_async/__init__.py by tools/gen_unasync.py; edit that one
"""The parts of the syphon that wait: for namespaces, for time, for each other."""
