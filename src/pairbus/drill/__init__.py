"""A rehearsal on the user's own pair: checks, an outage on the client's side, and a verdict.

`checks` collects facts about the two namespaces (`facts`), and `judging` turns them into findings.
`outage` sends through a real failover behind a gate of its own, `drain` runs a syphon where none
is running, and `account` judges the results. `drill` runs all of it in order, and `canary` creates
and removes the canary queue. Nothing else in either namespace is disabled or changed.
"""
