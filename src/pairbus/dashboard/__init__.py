"""The live page: `pairbus dashboard`.

`sources` reads (status files, administration, ledger, brokers), `snapshot` decides what it means,
`monitor` keeps the newest snapshot and a short history, `app` shows it, `guard` says who may.
"""
