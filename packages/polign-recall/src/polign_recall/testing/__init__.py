"""Tools for tests.

`conformance` checks a store of your own against the contract. `servers` starts real object stores and a database on
this machine, and `proxy` breaks HTTP on purpose; both serve this project's own tests.
"""
