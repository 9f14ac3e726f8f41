"""A game day on the user's own pair: checks, an outage on the client's side only, and a verdict.

`checks` collects facts about the two namespaces (`facts`) and `judging` turns them into findings.
`outage` sends through a real failover behind a gate of its own, `drain` brings the messages home,
`drill` runs all of it in order, and `canary` creates and removes what the drill needs. Nothing in
either namespace is disabled or changed, but for the canary queue.
"""
