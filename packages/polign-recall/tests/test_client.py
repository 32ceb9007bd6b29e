"""The client: where the records are, which agents there are, and how one is deleted."""

import pytest
from polign_recall import (
    Call,
    Client,
    Corrupt,
    Invalid,
    LeaseHeld,
    LeaseLost,
    NotFound,
    StoreUnavailable,
    StoreUnsupported,
    Turn,
)
from polign_recall.stores import DirectoryStore, MemoryStore

from .faulty import Faulty, away


def keys(store, prefix="agents/"):
    return [stat.key for stat in store.list(prefix)]


# ---- where the records are -----------------------------------------------------------------------------------------


def test_two_clients_on_one_named_memory_store_share_it():
    with Client(store="memory:shared-by-two") as one, one.resume("a") as agent:
        agent.record_turn("user", "hello")
    with Client(store="memory:shared-by-two") as two, two.resume("a") as agent:
        assert [turn.content for turn in agent.turns()] == ["hello"]
    assert Client(store="memory:another").agents() == []
    assert Client(store="memory:").agents() == []


@pytest.mark.parametrize("form", ["{}", "fs:{}", "file://{}"])
def test_a_directory_is_named_in_several_ways(tmp_path, monkeypatch, form):
    place = tmp_path / "records"
    url = form.format(place)
    with Client(local_dir=place).resume("a") as agent:
        agent.milestone("m")

    monkeypatch.setenv("POLIGN_STORE", url)
    clients = [Client(store=url), Client(env={"POLIGN_STORE": url}), Client(), Client(store=DirectoryStore(place))]

    assert {client.agents()[0].agent_id for client in clients} == {"a"}
    assert Client(local_dir=str(place), env={"POLIGN_STORE": "memory:"}).agents()


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"env": {}}, Invalid, "local_dir=, store= or url=, or set POLIGN_STORE"),
        ({"env": {"POLIGN_STORE": ""}}, Invalid, "set POLIGN_STORE"),
        ({"local_dir": "/tmp", "store": "memory:"}, Invalid, "one of local_dir, store and url"),
        ({"local_dir": ""}, Invalid, "not the path of a directory"), ({"store": ""}, Invalid, "not the path"),
        ({"store": "s4://bucket"}, StoreUnsupported, "no store for s4: "),
        ({"store": "memory:", "url": "http://127.0.0.1:1"}, Invalid, "one of local_dir, store and url"),
        ({"env": {"POLIGN_URL": "http://127.0.0.1:1", "POLIGN_STORE": "memory:"}}, Invalid, "are both set"),
        ({"url": "ftp://127.0.0.1"}, Invalid, "not the URL of a server"), ({"url": ""}, Invalid, "not the URL"),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_place_that_cannot_be_used_is_named(arguments, error, told):
    with pytest.raises(error, match=told):
        Client(**arguments)


def test_nothing_is_written_until_something_is_recorded(tmp_path):
    with Client(local_dir=tmp_path / "new") as client:
        assert client.agents() == []
        assert client.resume("a", defer_lease=True).context.fresh
        with pytest.raises(NotFound):
            client.status("a")

    assert not (tmp_path / "new").exists()


class Lying(MemoryStore):
    """A store that ignores the condition of a create."""

    def create(self, key, data):
        self.delete([key])
        return super().create(key, data)


def test_a_store_that_overwrites_is_refused_before_anything_is_written():
    store = Lying()
    client = Client(store=store)

    for write in (
        lambda: client.resume("a"),
        lambda: client.resume("a", defer_lease=True).acquire(),
    ):
        with pytest.raises(StoreUnsupported, match="does not honour put-if-absent"):
            write()

    assert store.list("") == []


def test_the_probe_survives_a_store_that_is_away_for_a_while():
    class Shaky(MemoryStore):
        away = 10

        def create(self, key, data):
            if key.startswith("probe/") and self.away:
                self.away -= 1
                raise StoreUnavailable("503")
            return super().create(key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        with Client(store=Shaky()).resume("a") as agent:
            assert agent.record_turn("user", "x") == 1


# ---- what a resumed process starts from ----------------------------------------------------------------------------


def test_the_context_of_a_first_start(client):
    with client.resume("a") as agent:
        context = agent.context

        assert (context.fresh, context.epoch, context.restarts, context.omitted) == (True, 1, 0, [])
        assert context.briefing == "This is the first start of agent 'a': nothing is recorded yet.\n"
        assert context.tokens == 15
        assert context.working_state.goal is None
        for empty in ("pins", "pointers", "milestones", "outputs", "recent_turns", "unanswered_calls"):
            assert getattr(context, empty) == []


def test_the_context_of_a_restart(client):
    with client.resume("a") as agent:
        agent.update_working_state(goal="g", plan=["one"])
        agent.pin("rule")
        agent.set_pointer("repo", "git_ref", "main")
        agent.milestone("m")
        ref = agent.store_output("o")
        agent.record_turn("assistant", calls=[Call("1", "answered"), Call("2", "open", {"a": 1})])
        agent.record_turn("tool", "done", call_id="1")
    with client.resume("a") as agent:
        context = agent.context

        assert (context.fresh, context.epoch, context.restarts) == (False, 2, 1)
        assert (context.working_state.goal, context.working_state.plan[0].step) == ("g", "one")
        assert [pin.text for pin in context.pins] == ["rule"]
        assert [pointer.target for pointer in context.pointers] == ["main"]
        assert [stone.text for stone in context.milestones] == ["m"]
        assert [output.ref for output in context.outputs] == [ref]
        assert [turn.seq for turn in context.recent_turns] == [1, 2]
        assert [(call.name, call.args) for call in context.unanswered_calls] == [("open", {"a": 1})]
        assert context.omitted == []
        assert context.tokens < 8_000
        assert "this is restart 1" in context.briefing
        agent.record_turn("tool", "done too", call_id="2")
        assert agent.refresh().unanswered_calls == []


def test_what_a_caller_does_to_a_context_stays_out_of_the_records(client):
    with client.resume("a") as agent:
        agent.record_turn("user", "one")
        context = agent.refresh()
        for name in ("pins", "pointers", "milestones", "outputs", "recent_turns"):
            getattr(context, name).clear()
        mine = Turn(role="user", content="two")
        agent.submit(mine).result()
        mine.content = "changed"

        assert [turn.content for turn in agent.refresh().recent_turns] == ["one", "two"]


def test_a_state_without_records_is_fresh_again_and_again(client):
    for number in range(5):
        with client.resume("a") as agent:
            assert (agent.context.fresh, agent.context.restarts) == (True, number)


@pytest.mark.parametrize("model", [None, "gpt-4", "some-model"])
def test_the_briefing_keeps_to_the_budget_of_the_model(client, model):
    with client.resume("a") as agent:
        for number in range(60):
            agent.record_turn("user", f"{number} " + "word " * 200)
    with client.resume("a", token_budget=1_000, model=model) as agent:
        assert 500 < agent.context.tokens <= 1_000
        assert agent.context.omitted[0].endswith("earlier turns: agent.turns()")


def test_a_counter_of_ones_own_is_used(client):
    class Bytes:
        def count(self, text):
            return len(text.encode())

    with client.resume("a") as agent:
        agent.record_turn("user", "word " * 1_000)
    with client.resume("a", token_budget=2_000, counter=Bytes()) as agent:
        assert len(agent.context.briefing.encode()) == agent.context.tokens <= 2_000


# ---- looking from outside ------------------------------------------------------------------------------------------


def test_status_says_who_works_and_how_far_it_is(client):
    with client.resume("a", holder="pod-1") as agent:
        agent.update_working_state(goal="g")
        agent.record_turn("user", "x")
        status = client.status("a")
        assert (status.held, status.holder, status.epoch, status.turns, status.goal) == (True, "pod-1", 1, 1, "g")
        assert (status.restarts, status.seq, status.problem) == (0, 3, "")
        assert 55 < status.expires_in <= 61
        assert status.since <= status.last_activity
    client.resume("a").close()

    status = client.status("a")
    assert (status.held, status.holder, status.expires_in, status.since) == (False, "", 0.0, "")
    assert (status.epoch, status.restarts) == (2, 1)


def test_agents_are_listed_by_id_whatever_it_looks_like(client):
    ids = ["Ünï", "a", "a b", "a/b", "../x", "a_b", "A", ".hidden", "%2F", "日本語"]
    for agent_id in ids:
        client.resume(agent_id).close()

    assert sorted(status.agent_id for status in client.agents()) == sorted(ids)
    assert {client.status(agent_id).epoch for agent_id in ids} == {1}


def test_what_others_keep_below_agents_is_passed_over(client, store):
    client.resume("a/b").close()
    for name in ("a%2fb", "%00", "%FF", "not ours", "%zz", "~x"):
        store.create(f"agents/{name}/log/00000000000000000001", b"{}")

    assert [(status.agent_id, bool(status.problem)) for status in client.agents()] == [("a/b", False), ("~x", True)]


def test_an_agent_that_cannot_be_read_is_listed_with_its_problem(client, store):
    for agent_id in ("bad", "good"):
        with client.resume(agent_id) as agent:
            agent.update_working_state(goal=agent_id)
    key = "agents/bad/log/00000000000000000002"
    store.delete([key])
    store.create(key, b'{"v": 1, ')

    bad, good = client.agents()

    assert (bad.agent_id, bad.goal, bad.held) == ("bad", "", False)
    assert bad.problem.startswith(f"[corrupt] {key} cannot be read")
    assert (good.goal, good.problem) == ("good", "")
    with pytest.raises(Corrupt, match=key):
        client.resume("bad")


def test_the_briefing_from_outside_is_that_of_the_next_start(client):
    with client.resume("a") as agent:
        agent.record_turn("user", "hello")
        seen = client.briefing("a", token_budget=500)
    with client.resume("a", token_budget=500) as agent:
        assert seen.partition("It is")[0] == agent.context.briefing.partition("It is")[0]
        assert "this is restart 1" in seen
    assert len(client.briefing("a", model="gpt-4")) > 0
    with pytest.raises(Invalid, match="token_budget"):
        client.briefing("a", token_budget=10)


@pytest.mark.parametrize("look", ["status", "briefing", "delete_agent"])
def test_an_agent_that_is_not_there_is_named(client, store, look):
    with pytest.raises(NotFound, match="agent 'nobody': there is no such agent"):
        getattr(client, look)("nobody")
    assert keys(store) == []


# ---- deleting ------------------------------------------------------------------------------------------------------


def filled(client, turns=100):
    with client.resume("a") as agent:
        for number in range(turns):
            agent.record_turn("user", f"secret {number}")
        agent.store_output("secret output")
        agent.pin("secret rule")


def test_a_deleted_agent_is_gone_and_fresh_when_opened_again(client, store):
    filled(client)
    assert keys(store, "agents/a/history/")

    report = client.delete_agent("a")

    assert report.deleted > 30
    assert report.refused == []
    assert client.agents() == []
    for look in (client.status, client.briefing, client.delete_agent):
        with pytest.raises(NotFound):
            look("a")
    assert not any(b"secret" in store.get(key).data for key in keys(store))
    with client.resume("a") as agent:
        assert (agent.context.fresh, agent.context.restarts, list(agent.turns())) == (True, 0, [])
        assert agent.recorded_ids(["x"]) == set()
        assert agent.record_turn("user", "new life") == 1
    assert [status.turns for status in client.agents()] == [1]
    with client.resume("a") as agent:
        assert [turn.content for turn in agent.turns()] == ["new life"]
        assert agent.context.restarts == 1


def test_a_life_after_deletion_can_be_deleted_too(client, store):
    for _ in range(3):
        filled(client, turns=70)
        client.delete_agent("a")

    assert client.agents() == []
    assert not any(b"secret" in store.get(key).data for key in keys(store))


def test_a_stalled_holder_of_a_deleted_agent_stays_fenced(client):
    stalled = client.resume("a")
    stalled.record_turn("user", "secret")
    with pytest.raises(LeaseHeld):
        client.delete_agent("a")

    client.delete_agent("a", takeover=True)

    with pytest.raises(LeaseLost):
        stalled.record_turn("user", "late")
    with pytest.raises(LeaseLost):
        stalled.store_output("late")
    stalled.close()
    with client.resume("a") as agent:
        agent.record_turn("user", "new life")
        assert [turn.content for turn in agent.turns()] == ["new life"]


class Clinging(MemoryStore):
    """A store that refuses to delete some keys."""

    clings_to = "/outputs/"

    def delete(self, keys):
        refused = [key for key in keys if self.clings_to in key]
        super().delete([key for key in keys if key not in refused])
        return refused


@pytest.mark.parametrize("kind", ["/outputs/", "/history/", "/log/", "/"])
def test_what_could_not_be_deleted_is_reported_and_tried_again(kind):
    store = Clinging()
    store.clings_to = kind
    client = Client(store=store)
    filled(client)

    report = client.delete_agent("a")

    assert report.refused
    assert all(kind in key for key in report.refused)
    assert client.agents() == []
    store.clings_to = "nothing"
    assert client.delete_agent("a").refused == []
    assert not any(b"secret" in store.get(key).data for key in keys(store))
    with pytest.raises(NotFound):
        client.delete_agent("a")


def test_a_deletion_that_fails_midway_can_be_repeated(monkeypatch):
    monkeypatch.setattr("polign_recall.chain.protocol.ATTEMPTS", 1)
    monkeypatch.setattr("polign_recall.chain.folding.ATTEMPTS", 1)
    failed = 0
    for operation in ("create", "list", "delete", "get"):
        for good_calls in range(8):
            store = Faulty()
            filled(Client(store=store), turns=3)
            store.fail(operation, "agents/", [*([lambda real: real()] * good_calls), away])
            try:
                Client(store=store).delete_agent("a")
            except StoreUnavailable:
                failed += 1
                Client(store=store).delete_agent("a", takeover=True)
            store.fail(operation, "agents/", [])
            assert Client(store=store).agents() == []
            assert not any(b"secret" in store.get(stat.key).data for stat in store.list("agents/"))
    assert failed > 5
