"""URLs, names and extras: what needs no server."""

import os
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polign_recall.errors import Invalid, StoreDenied, StoreUnsupported, TooLarge
from polign_recall.stores import _names, base, open_store

AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "hidden too"}
AZURE = {"AZURE_STORAGE_ACCOUNT_KEY": "aGlkZGVu"}
ENV = {**AWS, **AZURE, "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1", "PGPASSWORD": "hidden"}


@pytest.mark.parametrize(
    ("url", "again"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/Ünï code", "s3://bucket/Ünï code"),
        ("s3://my.bucket-1/p?region=eu-central-1", "s3://my.bucket-1/p?region=eu-central-1"),
        ("s3://b/p?endpoint=https://s3.example.com/", "s3://b/p?endpoint=https://s3.example.com/"),
        ("s3://b/p?endpoint=http%3A%2F%2Flocalhost%3A9000", "s3://b/p?endpoint=http://localhost:9000"),
        ("gs://bucket/p?endpoint=http://localhost:1", "gs://bucket/p?endpoint=http://localhost:1"),
        ("gcs://bucket", "gs://bucket?endpoint=http://127.0.0.1:1"),
        ("az://account/container", "az://account/container"),
        ("az://account/container/p/q", "az://account/container/p/q"),
        ("postgres://me@host/db", "postgresql://me@host/db"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://me:sec%40ret@one:1,two:2/db?sslmode=require", "postgresql://me@one:1,two:2/db?sslmode=require"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me"),
        ("postgresql://host/db?options=-csearch_path%3Da%20b", "postgresql://host/db?options=-csearch_path%3Da%20b"),
    ],
)
def test_what_a_store_says_of_its_place(url: str, again: str) -> None:
    store = open_store(url, env=ENV)
    assert store.url == again
    assert open_store(again, env=ENV).url == again
    for text in (store.url, repr(store), repr(vars(store))):
        assert "secret" not in text
        assert "hidden" not in text


def test_an_endpoint_of_the_environment_is_part_of_the_place() -> None:
    env = {**AWS, "AWS_ENDPOINT_URL": "http://localhost:9000"}
    assert open_store("s3://bucket/p", env=env).url == "s3://bucket/p?endpoint=http://localhost:9000"
    env["AWS_ENDPOINT_URL_S3"] = "http://localhost:9001"
    assert open_store("s3://bucket/p", env=env).url == "s3://bucket/p?endpoint=http://localhost:9001"
    given = "s3://bucket/p?endpoint=http://localhost:9002"
    assert open_store(given, env=env).url == given


@pytest.mark.parametrize(
    "url",
    [
        "s3:", "s3://", "s3:bucket", "s3:///prefix", "s3://bucket//p", "s3://bucket/a//b", "s3://bucket/../p", "s3://bucket/./p",
        "s3://bucket/a\\b", "s3://bucket?endpont=x", "s3://bucket?endpoint=localhost:9000", "s3://bucket?endpoint=ftp://x",
        "s3://bucket?endpoint=", "s3://bucket#part", "s3://bu cket", "s3://-bucket", "s3://key:secret@bucket/p",
        "s3://key:secret/p", "s3://bucket?endpoint=http://key:secret@host", "s3://bucket?region=a&secret=secret",
        "gs://", "gs://bucket/a//b", "gs://me:secret@bucket", "az://account", "az://account/", "az:///container",
        "az://account:secret@container/p", "az://account/container?sas=secret", "postgresql://host/db?nosuch=secret",
        "postgresql://me:secret@host:port/db?x=%zz",
    ],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(Invalid) as raised:
        open_store(url, env=ENV)
    shown = f"{raised.value} {raised.value.__cause__}"
    assert "secret" not in shown.replace("no option 'secret'", "")


def test_directory_buckets_are_refused() -> None:
    with pytest.raises(StoreUnsupported, match="list in no order"):
        open_store("s3://name--use1-az4--x-s3/p", env=AWS)


def test_aws_settings_that_lead_nowhere(tmp_path: object) -> None:
    empty = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    with pytest.raises(StoreDenied, match="profile"):
        open_store("s3://bucket", env={**empty, "AWS_PROFILE": "no-such-profile"})
    code = "from polign_recall.stores import open_store; open_store('s3://bucket')"
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= {**empty, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "StoreDenied: [store_denied] there are no AWS credentials (set AWS_ACCESS_KEY_ID" in ended.stderr


def test_google_settings_that_lead_nowhere() -> None:
    with pytest.raises(StoreDenied, match="GOOGLE_APPLICATION_CREDENTIALS"):
        open_store("gs://bucket", env={"GOOGLE_APPLICATION_CREDENTIALS": "/no/such/file"})


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://b", "obstore", "s3"),
        ("s3://b", "botocore", "s3"),
        ("az://a/c", "obstore", "azure"),
        ("gs://b", "google.auth", "gcs"),
        ("gcs://b", "requests", "gcs"),
        ("postgres://h/d", "psycopg", "postgres"),
        ("postgresql://h/d", "psycopg", "postgres"),
    ],
)
def test_a_missing_extra_is_named(url: str, module: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\nfrom polign_recall.stores import open_store\nopen_store({url!r})"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    error = ended.stderr.splitlines()[-1]
    assert "[store_unsupported]" in error
    assert f"(pip install 'polign-recall[{extra}]')" in error


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, polign_recall, polign_recall.stores\n"
        "heavy = {'obstore', 'botocore', 'boto3', 'google', 'requests', 'psycopg'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


# -- names -------------------------------------------------------------------------------------------------------

segments = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
keys = st.lists(segments.filter(lambda segment: segment not in (".", "..")), min_size=1, max_size=4).map("/".join)


@given(keys)
@example("a/trailing./b")
@example(" / /.a")
@example("a.b/...")
@example("^20/%20/a^")
def test_a_name_is_a_key_again(key: str) -> None:
    name = _names.to_name(key)
    assert _names.to_key(name) == key
    assert name.isascii()
    assert name.isprintable()
    assert "\\" not in name
    for segment in name.split("/"):
        assert not segment.startswith(" ")
        assert not segment.endswith((" ", "."))


@given(keys, st.integers(0, 40))
def test_a_folder_is_escaped_like_the_keys_below_it(key: str, cut: int) -> None:
    folder = key[: key.rfind("/", 0, cut) + 1]
    assert _names.to_name(key).startswith(_names.escape(folder))


@given(st.text(max_size=12))
def test_other_names_are_passed_over(name: str) -> None:
    key = _names.to_key(name)
    assert key is None or _names.to_name(key) == name


def test_what_the_core_writes_keeps_its_name() -> None:
    for key in ("agents/a%2Fb.c/log/00000000000000000001.snap", "agents/~x_y-z/outputs/0123", "probe/0123"):
        assert _names.to_name(key) == key


def test_keys_that_are_too_long() -> None:
    stores = [open_store(url, env=ENV) for url in ("s3://b/prefix", "az://a/c", "gs://b", "postgresql://h/d")]
    for store in stores:
        for call in (lambda: store.create("x/" * 1500 + "x", b""), lambda: store.get("x/" * 1500 + "x")):  # noqa: B023
            with pytest.raises(TooLarge):
                call()
    base.check_key("x/" * 1500 + "x")
