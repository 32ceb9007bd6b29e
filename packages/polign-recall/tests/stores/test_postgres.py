"""What only PostgreSQL has: roles, restarts, settings of its own, connections that break."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from polign_recall import Client
from polign_recall.errors import StoreDenied, StoreUnavailable
from polign_recall.stores import Outcome, Store, open_store, probe
from polign_recall.stores.postgres import _range
from polign_recall.testing import servers
from polign_recall.testing.servers import Postgres, free_port

TABLE = "polign_objects"


def as_role(server: Postgres, area: str, *grants: str, settings: str = "") -> Store:
    """A store in the schema `area`, as a role of that name with these rights only."""
    server.sql(f"CREATE ROLE {area} LOGIN PASSWORD 'role-password'; GRANT USAGE ON SCHEMA {area} TO {area}")
    for grant in grants:
        server.sql(f"GRANT {grant} TO {area}")
    if settings:
        server.sql(f"ALTER ROLE {area} {settings}")
    url = server.url(area).replace("postgres@", f"{area}:role-password@")
    return open_store(url, env={})


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server that no other test uses, to be stopped and started."""
    with servers.postgres() as server:
        yield server


# -- rights ------------------------------------------------------------------------------------------------------


def test_a_reader(postgres: Postgres, postgres_store: Store, area: str) -> None:
    postgres_store.create("agents/a/1", b"value")
    reader = as_role(postgres, area, f"SELECT ON {area}.{TABLE}")
    assert reader.get("agents/a/1") == postgres_store.get("agents/a/1")
    assert reader.list("") == postgres_store.list("")
    assert reader.names("agents/") == ["a"]
    assert reader.now() > 0
    for write in (lambda: reader.create("agents/a/2", b"value"), lambda: probe(reader)):
        with pytest.raises(StoreDenied, match="it needs INSERT") as raised:
            write()
        assert "role-password" not in f"{raised.value} {raised.value.__cause__} {reader.url}"
    assert reader.delete(["agents/a/1", "agents/a/none"]) == ["agents/a/1"]
    assert postgres_store.get("agents/a/1") is not None
    reader.close()


def test_a_writer_that_may_not_delete(postgres: Postgres, postgres_store: Store, area: str) -> None:
    postgres_store.create("other", b"value")
    writer = as_role(postgres, area, f"SELECT, INSERT ON {area}.{TABLE}")
    texts = [f"turn {number}" for number in range(150)]  # enough to be folded twice
    with Client(store=writer) as client:
        with client.resume("a") as agent:
            for text in texts:
                agent.record_turn("user", text)
        with client.resume("a") as agent:
            assert [turn.content for turn in agent.turns()] == texts
        report = client.delete_agent("a")
    assert report.deleted == 0
    assert len(report.refused) > 150
    writer.close()


def test_a_role_that_may_not_make_the_table(postgres: Postgres, area: str) -> None:
    postgres.schema(area)
    store = as_role(postgres, area)
    assert store.list("") == [], "there is nothing yet, and reading does not make anything"
    assert store.get("key") is None
    with pytest.raises(StoreDenied, match="CREATE on the schema"):
        store.create("key", b"value")
    store.close()


def test_a_transaction_that_is_read_only(postgres: Postgres, postgres_store: Store, area: str) -> None:
    postgres_store.create("key", b"value")
    store = as_role(postgres, area, f"ALL ON {area}.{TABLE}", settings="SET default_transaction_read_only = on")
    assert store.get("key") is not None
    with pytest.raises(StoreDenied, match="read-only transaction"):
        store.create("other", b"value")
    store.close()


def test_a_wrong_password(postgres: Postgres, area: str) -> None:
    store = open_store(postgres.schema(area), env={"PGPASSWORD": "not-this-one"})
    for act in (lambda: store.create("key", b"value"), lambda: store.list("")):
        with pytest.raises(StoreDenied, match="password authentication failed") as raised:
            act()
        assert "not-this-one" not in f"{raised.value} {raised.value.__cause__!r}"


# -- durability --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("set_to", "commits"), [("off", "on"), ("on", "on"), ("local", "local")])
def test_a_write_waits_for_the_disk(postgres: Postgres, area: str, set_to: str, commits: str) -> None:
    """A trigger writes down the setting that the transaction commits with."""
    admin = open_store(postgres.schema(area), env=postgres.env)
    admin.create("first", b"value")
    postgres.sql(
        f"CREATE TABLE {area}.seen (setting text);"
        f"CREATE FUNCTION {area}.note() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN INSERT INTO {area}.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        f"CREATE TRIGGER note AFTER INSERT ON {area}.{TABLE} FOR EACH ROW EXECUTE FUNCTION {area}.note()"
    )
    store = as_role(
        postgres, area, f"ALL ON ALL TABLES IN SCHEMA {area}", settings=f"SET synchronous_commit = {set_to}"
    )
    assert store.create("second", b"value") is Outcome.CREATED
    settings = {"host": "127.0.0.1", "port": postgres.port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**settings, password=postgres.env["PGPASSWORD"]) as connection:
        assert connection.execute(f"SELECT setting FROM {area}.seen").fetchall() == [(commits,)]
    store.close()
    admin.close()


def test_a_crash_in_the_middle_of_a_run(own: Postgres) -> None:
    texts = [f"turn {number}" for number in range(60)]
    store = open_store(own.schema("crash"), env=own.env)
    with Client(store=store) as client, client.resume("a") as agent:
        for number, text in enumerate(texts):
            if number in (20, 40):
                own.stop(signal.SIGQUIT if number == 20 else signal.SIGINT)
                restart = threading.Timer(0.3, own.start)
                restart.start()
            assert agent.record_turn("user", text) == number + 1
            if number in (20, 40):
                restart.join()
    with Client(store=store) as client, client.resume("a") as agent:
        assert [turn.content for turn in agent.turns()] == texts
    store.close()


# -- connections -------------------------------------------------------------------------------------------------


def test_a_session_that_ends_while_it_writes(postgres: Postgres, postgres_store: Store, area: str) -> None:
    postgres_store.create("first", b"value")
    settings = {"host": "127.0.0.1", "port": postgres.port, "user": "postgres", "dbname": "postgres"}
    with (
        psycopg.connect(**settings, password=postgres.env["PGPASSWORD"]) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute(f"INSERT INTO {area}.{TABLE} (key, data) VALUES ('contended', 'theirs')")
        ours = pool.submit(postgres_store.create, "contended", b"ours")  # waits for the other transaction to end
        terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        for _ in range(2_000):
            if other.execute(terminate).fetchone() != (0,):
                break
            threading.Event().wait(0.01)
        assert ours.result(60) is Outcome.UNKNOWN
        other.rollback()
    assert postgres_store.get("contended") is None
    assert postgres_store.create("contended", b"ours") is Outcome.CREATED


def test_a_statement_that_is_cancelled_wrote_nothing(postgres: Postgres, area: str) -> None:
    admin = open_store(postgres.schema(area), env=postgres.env)
    admin.create("first", b"value")
    store = as_role(postgres, area, f"ALL ON {area}.{TABLE}", settings="SET statement_timeout = '200ms'")
    settings = {"host": "127.0.0.1", "port": postgres.port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**settings, password=postgres.env["PGPASSWORD"]) as other:
        other.execute(f"INSERT INTO {area}.{TABLE} (key, data) VALUES ('contended', 'theirs')")
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            store.create("contended", b"ours")
        other.rollback()
    assert store.get("contended") is None
    store.close()
    admin.close()


def test_idle_connections_that_broke(postgres: Postgres, postgres_store: Store, area: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: postgres_store.create(f"key/{number}", b"value"), range(40)))
    postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        f"AND query LIKE '%{TABLE}%'"
    )
    assert len(postgres_store.list("key/")) == 40, "a reader does not see that"
    assert postgres_store.create("key/40", b"value") is Outcome.CREATED, "one broken connection gives all of them up"


def test_nothing_is_sent_where_nobody_listens(postgres: Postgres) -> None:
    store = open_store(postgres.url("x", free_port()), env=postgres.env)
    for act in (lambda: store.create("key", b"value"), lambda: store.list(""), store.now, lambda: store.delete(["a"])):
        with pytest.raises(StoreUnavailable, match="nothing was sent"):
            act()


def test_many_make_the_table_at_once(postgres: Postgres, area: str) -> None:
    url = postgres.schema(area)
    stores = [open_store(url, env=postgres.env) for _ in range(8)]
    barrier = threading.Barrier(len(stores), timeout=60)

    def create(number: int) -> Outcome:
        barrier.wait()
        return stores[number].create(f"key/{number}", b"value")

    with ThreadPoolExecutor(len(stores)) as pool:
        assert list(pool.map(create, range(len(stores)))) == [Outcome.CREATED] * len(stores)
    assert len(stores[0].list("key/")) == len(stores)
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("prefix", "beyond"),
    [("", None), ("a/", "a0"), ("a", "b"), ("\ud7ff", "\ue000"), ("a\U0010ffff", "b"), ("\U0010ffff", None)],
)
def test_the_range_of_a_prefix(prefix: str, beyond: str | None) -> None:
    assert _range(prefix) == {"first": prefix, "beyond": beyond}


def test_prefixes_at_the_edges_of_the_alphabet(postgres_store: Store) -> None:
    keys = ["a", "\ud7ff/x", "\ud7ffx", "\ue000", "\U0010ffff", "\U0010ffff/x", "\U0010fffe\U0010ffff/1"]
    for key in keys:
        postgres_store.create(key, b"value")
    for prefix in ("", "\ud7ff", "\ud7ff/", "\U0010ffff", "\U0010fffe\U0010ffff", "\ue000"):
        found = [stat.key for stat in postgres_store.list(prefix)]
        assert found == sorted(key for key in keys if key.startswith(prefix))
