"""`pairbus demo`: a whole outage on one machine, with real parts.

Two brokers as processes of their own, the unmodified SDK, sync and async senders, readers, a
`kill -9`, pings, the syphon on Spark, the reconciliation and the bill. `stage` has the parts,
`traffic` makes the load, `account` keeps the demo's own books (independent of the ledger, which it
checks), `scenario` tells it act by act, `display` shows it.
"""
