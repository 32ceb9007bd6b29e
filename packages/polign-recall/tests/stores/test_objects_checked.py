"""Pointers to objects in a bucket, checked at resume by an agent that lives in the same bucket."""

from polign_recall import Client, PointerCheck, open_store
from polign_recall.checkers import check_object


def test_an_object_in_a_bucket(ministack, area):
    store = open_store(ministack.url(f"{area}/reports"), env=ministack.env)
    url = f"s3://{ministack.url(f'{area}/reports/q3.csv').partition('//')[2].partition('?')[0]}"
    with Client(store=ministack.url(f"{area}/agents"), env=ministack.env) as client:

        def status():
            agent = client.resume("a", defer_lease=True, checkers={"object": check_object(store)})
            assert agent.context.pointer_checks["by key"] == agent.context.pointer_checks["by url"]
            return agent.context.pointer_checks["by url"]

        store.create("q3.csv", b"a,b\n")
        with client.resume("a", checkers={"object": check_object(store)}) as agent:
            agent.set_pointer("by key", "object", "q3.csv")
            agent.set_pointer("by url", "object", url)
        assert status() == PointerCheck("same", store.get("q3.csv").version)
        store.delete(["q3.csv"])
        assert status() == PointerCheck("gone")
        store.create("q3.csv", b"a,b\n1,2\n")
        assert status() == PointerCheck("changed", store.get("q3.csv").version)


def test_a_bucket_that_does_not_answer_is_not_one_whose_objects_are_gone(ministack, area):
    store = open_store(ministack.url(area, port=9), env=ministack.env)
    checkers = {"object": check_object(store)}
    with Client(store="memory:") as client, client.resume("a", checkers=checkers) as agent:
        agent.set_pointer("report", "object", "q3.csv")
        assert agent.refresh().pointer_checks == {"report": PointerCheck("not checked", error="StoreUnavailable")}
