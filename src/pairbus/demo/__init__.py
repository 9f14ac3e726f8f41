"""`pairbus demo`: a whole outage on one machine, with real parts.

Two brokers as processes of their own, the unmodified SDK, sync and async senders, readers, a
`kill -9`, pings, the syphon on Spark, the reconciliation and the bill. `setup` has the parts,
`load` the senders and readers, `message_account` the demo's own account (independent of the ledger,
which it checks), `scenario` runs the acts, `display` shows them.
"""
