"""polign-server: the core over HTTP, for machines that share a server instead of a store (docs/server.md).

- operations: the table of all routes; shapes: what goes over the wire
- agents: list, status, state, briefing, delete; reading: turns and entries, page by page
- writing: claim, records, renew, release; leases and appends: how the chain fences them
- heads: the ends of chains just acknowledged; folds: folding in the background
- outputs: large values, streamed; places: collections in one store
- keys, access: who may do what; limits, connections: how much, how fast
- problems, metrics, logs, upkeep, openapi, page: what is told, to whom
- service, app, serving, main: put together and run
"""
