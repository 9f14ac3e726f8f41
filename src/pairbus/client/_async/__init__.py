"""The bulk client, written once: `_sync` is generated from here."""
