"""Claiming an agent's lease for a client elsewhere, by the core's own `Chain.acquire`.

The client chooses the claim's put id and time, so the same request makes the same bytes wherever it is carried out, and
a claim whose answer was lost is recognised when it is asked for again.
"""

from __future__ import annotations

from polign_recall import LeaseHeld, LeaseLost
from polign_recall.chain import Chain, Env, Lease, Replay, agent_prefix
from polign_recall.chain.steps import Steps

from .problems import HeldElsewhere, OutOfStep
from .shapes import ClaimBody


class _AlreadyMade(Exception):
    """Not an error: the claim of this very request ends the chain."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay


class Claimant(Chain):
    """A chain that is claimed for one request."""

    def __init__(self, agent_id: str, request: ClaimBody) -> None:
        env = Env(wall=lambda: request.at, new_put=lambda: request.put)
        super().__init__(agent_prefix(agent_id), agent_id, env)
        self.request = request
        self._seen = Lease()

    def claim(self) -> Steps[Replay]:
        """Own the chain; gives its replay, which ends with the claim. Raises LeaseHeld; LeaseLost for an old repeat."""
        body = self.request
        try:
            return (yield from self.acquire(ttl=body.ttl, holder=body.holder, host=body.host.host()))
        except _AlreadyMade as made:
            # The LIST of that replay was made after the claim and shows it on top of what was replayed (R2).
            self.replay = made.replay
            self.epoch, self.holder = made.replay.lease.epoch, body.holder
            return made.replay
        except LeaseHeld as held:
            raise HeldElsewhere(held, self._seen.epoch, self._seen.host) from None

    def blocker(self, replay: Replay) -> Steps[LeaseHeld | None]:
        """See `Chain.blocker`. A takeover is settled here, so that a repeated one does not take over from itself."""
        self._seen = replay.lease
        stale = self._was_made(replay)
        if not stale and (self.request.takeover or self._saw_it_dead(replay.lease)):
            return None
        held = yield from super().blocker(replay)
        if held is None and stale:
            raise LeaseLost(
                "this very claim was made before, and the chain has moved on since", agent_id=self.agent_id,
                hint="claim again with a new put id", by=replay.lease.holder, epoch=replay.lease.epoch, landed=True,
            )  # fmt: skip
        return held

    def _was_made(self, replay: Replay) -> bool:
        """Whether this claim was made, and others have written since. Raises _AlreadyMade when nobody has."""
        if not any(link.entry.put == self.request.put for link in replay.links):
            return False
        if replay.kind != "claim" or replay.put != self.request.put:
            return True
        if replay.lease.holder != self.request.holder:
            raise OutOfStep("this put id was used for another claim", agent_id=self.agent_id)
        raise _AlreadyMade(replay)

    def _saw_it_dead(self, lease: Lease) -> bool:
        return lease.epoch > 0 and lease.epoch == self.request.dead_epoch
