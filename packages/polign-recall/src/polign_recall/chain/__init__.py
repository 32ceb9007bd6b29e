"""The chain: how an agent's records and its lease live in a store (docs/PROTOCOL.md)."""

from .drivers import drive, run, run_async
from .entries import FORMAT, Entry, Host, Lease, Link, Snapshot
from .folding import FoldJob, create_once, erase, fold, fold_job, folded
from .keys import agent_prefix, decode_id, encode_id
from .lease import new_holder, process_start, this_host
from .protocol import Chain, Env, Replay

__all__ = [
    "FORMAT", "Chain", "Entry", "Env", "FoldJob", "Host", "Lease", "Link", "Replay", "Snapshot", "agent_prefix",
    "create_once", "decode_id", "drive", "encode_id", "erase", "fold", "fold_job", "folded", "new_holder",
    "process_start", "run", "run_async", "this_host",
]  # fmt: skip
