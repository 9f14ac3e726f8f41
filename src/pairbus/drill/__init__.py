"""A game day on the user's own pair: checks, an outage on the client's side only, and a verdict.

`checks` collects facts about the two namespaces (`facts`), and `judging` turns them into findings.
`outage` sends through a real failover behind a gate of its own, `drain` runs a syphon where none
is running, and `account` judges what happened. `drill` runs all of it in order, and `canary`
creates and removes what the drill needs. Nothing in either namespace is disabled or changed, except
for the canary queue.
"""
