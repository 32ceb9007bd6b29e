"""Secrets are taken out before anything is saved; what only looks a little like one stays.

No secret in here is real, and none stands in the file: each is put together from parts.
"""

from __future__ import annotations

import base64
import io
import json
import random
import string
import uuid
from collections.abc import Callable
from hashlib import sha1, sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polign_recall import (
    Action,
    Call,
    Client,
    Invalid,
    Milestone,
    Pin,
    PlanStep,
    RecallError,
    ResumedAgent,
    Turn,
    redact,
)
from polign_recall.cleaning import CHUNK, FAILED
from polign_recall.redact import find

_random = random.Random(7)


def chars(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_random.choices(alphabet, k=count))


HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + "234567"
PEM = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "\n".join(chars(64) for _ in range(12)) + "\n-----END "
SHAPES = {
    "aws-access-key": ["AK" + "IA" + chars(16, UPPER), "AS" + "IA" + chars(16, UPPER)],
    "aws-bedrock-key": ["AB" + "SK" + chars(110) + "==", "bedrock" + "-api-key-" + chars(100)],
    "github-token": [
        *("gh" + kind + "_" + chars(36) for kind in "pousr"),
        "github" + "_pat_" + chars(82),
        "gh" + "s_123456_ey" + "J" + chars(40) + ".ey" + "J" + chars(300) + "." + chars(86) + "-_",
    ],
    "gitlab-token": [
        "gl" + "pat-" + chars(20),
        "gl" + "pat-" + chars(27) + ".01." + chars(9),
        "gl" + "oas-" + chars(64),
    ],
    "slack-token": [
        *("xo" + f"x{kind}-" + chars(12, string.digits) + "-" + chars(24) for kind in "abcprs"),
        "xa" + "pp-1-A" + chars(10) + "-" + chars(13, string.digits) + "-" + chars(64),
    ],
    "anthropic-key": ["sk-" + "ant-api03-" + chars(93) + "AA"],
    "openai-key": ["sk-" + chars(48), "sk-" + "proj-" + chars(100), "sk-" + "or-v1-" + chars(64, HEX)],
    "groq-key": ["gs" + "k_" + chars(52)],
    "xai-key": ["xa" + "i-" + chars(80)],
    "perplexity-key": ["pp" + "lx-" + chars(48)],
    "replicate-token": ["r" + "8_" + chars(37)],
    "nvidia-key": ["nv" + "api-" + chars(64)],
    "elevenlabs-key": ["s" + "k_" + chars(48, HEX)],
    "langsmith-key": ["ls" + "v2_pt_" + chars(32, HEX) + "_" + chars(10, HEX)],
    "langfuse-key": ["sk-" + "lf-" + str(uuid.UUID(int=_random.getrandbits(128)))],
    "pinecone-key": ["pc" + "sk_" + chars(6) + "_" + chars(63)],
    "tavily-key": ["tv" + "ly-dev-" + chars(32)],
    "google-api-key": ["AI" + "za" + chars(35), "A" + "Q.Ab8RN6" + chars(45)],
    "google-oauth-token": ["ya" + "29." + chars(60), "1/" + "/0" + chars(60)],
    "azure-key": [chars(3) + "8" + "Q~" + chars(34), chars(52) + "JQ" + "QJ99" + chars(26)],
    "digitalocean-token": ["do" + "p_v1_" + chars(64, HEX)],
    "databricks-token": ["da" + "pi" + chars(32, HEX)],
    "docker-token": ["dc" + "kr_pat_" + chars(27)],
    "vault-token": ["hv" + "s." + chars(91)],
    "terraform-token": [chars(14) + ".atlas" + "v1." + chars(67)],
    "grafana-token": ["gl" + "sa_" + chars(32) + "_" + chars(8, HEX)],
    "sentry-token": ["sn" + "tryu_" + chars(64, HEX)],
    "atlassian-token": ["AT" + "ATT3" + chars(180) + "=" + chars(8)],
    "telegram-token": [chars(10, string.digits) + ":A" + "A" + chars(33)],
    "stripe-webhook-secret": ["wh" + "sec_" + chars(32)],
    "shopify-token": ["sh" + "pat_" + chars(32, HEX)],
    "age-key": ["AGE-" + "SECRET-KEY-1" + chars(58, UPPER)],
    "google-client-secret": ["GOC" + "SPX-" + chars(28)],
    "stripe-key": [kind + "k_" + "live_" + chars(24) for kind in "sr"],
    "npm-token": ["np" + "m_" + chars(36)],
    "pypi-token": ["py" + "pi-AgEIcHlwaS5vcmc" + chars(60)],
    "huggingface-token": ["h" + "f_" + chars(34)],
    "sendgrid-key": ["S" + "G." + chars(22) + "." + chars(43)],
    "twilio-key": ["S" + "K" + chars(32, HEX)],
    "jwt": ["ey" + "J" + chars(30) + ".ey" + "J" + chars(60) + "." + chars(43)],
    "private-key": [PEM + "RSA PRIVATE KEY-----", PEM.removesuffix("\n-----END ")],
    "polign-key": ["pl" + "gn_" + chars(16, HEX) + "_" + chars(64, HEX)],
}
SECRETS = [(rule, secret) for rule, secrets in SHAPES.items() for secret in secrets]
NAMED = chars(10) + "7a" + chars(12)
IN_CONTEXT = [
    ("aws-secret-key", "aws_secret_access_key = {}", chars(38) + "/+"),
    ("aws-secret-key", '{{"SecretAccessKey": "{}"}}', chars(40)),
    ("discord-webhook", "https://discord.com/api/webhooks/" + chars(18, string.digits) + "/{}", chars(68)),
    ("azure-signature", "https://a.blob.core.windows.net/b/c?se=2027-01-01&sig={}&sp=r", chars(43) + "%3D"),
    ("slack-webhook", "https://hooks.slack.com/services/{}", "T0" + chars(8) + "/B0" + chars(8) + "/" + chars(24)),
    ("authorization", "Authorization: Bearer {}", chars(30) + "1a"),
    ("authorization", "-H 'authorization: Basic {}'", base64.b64encode(b"user:pa55word1").decode()),
    ("url-password", "postgresql://app:{}@db.internal:5432/app", "hunter" + "2!"),
    ("url-password", "redis://:{}@localhost", "p@ss" + "w0rd"),
    ("azure-key", "AccountName=a;AccountKey={};EndpointSuffix=x", chars(86) + "=="),
    ("named-secret", 'password = "{}"', NAMED),
    ("named-secret", "DB_PASSWORD={}", NAMED),
    ("named-secret", '{{"api_key": "{}"}}', NAMED),
    ("named-secret", '"{{\\"client_secret\\": \\"{}\\"}}"', NAMED),
    ("named-secret", "token: {}", NAMED),
]
A_HASH = sha256(b"x").hexdigest()
ORDINARY = [
    sha1(b"x").hexdigest(), A_HASH, f"sha256:{A_HASH}", str(uuid.UUID(int=2**100 + 7)), f"out-{A_HASH[:32]}",
    base64.b64encode(_random.randbytes(60_000)).decode(), base64.urlsafe_b64encode(_random.randbytes(60_000)).decode(),
    "/home/user/.config/token/abc123/file.txt", "https://example.org:8080/a/b@2x.png?x=1", "git@github.com:a/b.git",
    "git+ssh://git@example.org/a/b.git", "call_" + chars(24), "chatcmpl-" + chars(29), "toolu_" + chars(24),
    "max_tokens=8000, token_budget: 300", "password: str = None", "def login(token: Token2Type) -> None:",
    "token = response.token2.value3", "secret = get_secret(name1)", "password=${DB_PASSWORD1}",
    "api_key = <your-key-1>", "https://user:$TOKEN@example.org", f"next_token={NAMED}",
    f'"nextPageToken": "{NAMED}"', "risk-assessment-2024-final",
    "task-0123456789abcdef0123456789abcdef01234567", "the secret is 42", "Authorization: Bearer <token>",
    "Traceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'token'", "-----BEGIN CERTIFICATE-----\nMIIB",
    "https://***:***@proxy",
    "arn:aws:secretsmanager:us-west-2:123456789012:secret:MyTestDatabaseSecret1-d4e5f6",
    '"ClientRequestToken": "9f3c1b2e-90ab-cdef-fedc-ba987654321a1"', '"output_token": "Shards[-1].Shard1Id"',
    "X_FOR_OBJECT_ON_TOKEN =\n\tP11_KIT_URI_FOR_OBJECT | OTHER",
    '("-----BEGIN PRIVATE' + ' KEY-----", "-----END PRIVATE KEY-----")', "# -----BEGIN RSA PRIVATE" + " KEY-----...",
    "-----BEGIN EC PRIVATE" + " KEY-----\\n<key bytes>\\n-----END EC PRIVATE KEY-----", "weighs_" + "a_lot_" * 9,
    f"commit {sha1(b'y').hexdigest()}\nAuthor: A <a@example.org>", "pypi-server 2.3", "npm_config_registry", "hf_hub",
]  # fmt: skip


@pytest.mark.parametrize(("rule", "secret"), SECRETS)
@pytest.mark.parametrize("around", ["{}", "it is {} now", "a\\n{}\\nb", '{{"x": "{}"}}', "k%20{}", "x={};"])
def test_a_known_shape_becomes_a_marker(rule: str, secret: str, around: str) -> None:
    text = around.format(secret)
    redacted = redact(text)
    assert secret not in redacted
    assert f"[redacted: {rule}]" in redacted or "[redacted: named-secret]" in redacted
    assert redacted.startswith(text[: around.index("{}") // 2])
    assert redact(redacted) == redacted


@pytest.mark.parametrize(("rule", "around", "secret"), IN_CONTEXT)
def test_a_secret_is_known_by_what_stands_before_it(rule: str, around: str, secret: str) -> None:
    before, _, after = around.format("\0").partition("\0")
    assert redact(before + secret + after) == f"{before}[redacted: {rule}]{after}"


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: text[:30])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text
    assert redact(f'see "{text}", (and) \n{text}') == f'see "{text}", (and) \n{text}'


@given(st.binary(max_size=200), st.uuids())
def test_hashes_ids_and_base64_are_left_alone(data: bytes, one: uuid.UUID) -> None:
    for text in (data.hex(), base64.b64encode(data).decode(), str(one), sha256(data).hexdigest(), f"run-{one.hex}"):
        assert redact(f"made {text} today") == f"made {text} today"


AROUND = ["password=", "token: '", '"', "://u:", "@h", " ", "\n", "-", "Bearer ", "x"]
PIECES = [secret for _, secret in SECRETS] + AROUND


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=10), max_size=8).map("".join))
def test_twice_is_the_same_and_nothing_known_is_left(text: str) -> None:
    redacted = redact(text)
    assert redact(redacted) == redacted
    assert find(redacted) == []


@pytest.mark.parametrize(
    "unit",
    ["a", ".", "eyJ", "eyJ.", "eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "://", "://a:", "token=", "password: ",
     "secret_key ", "xoxb-", "sk-", "ghp_", "Bearer ", "glpat-", "AKIA", "\\n", "hooks.slack.com/services/", "SG.a."],
)  # fmt: skip
def test_the_time_is_linear(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))  # what grows with the square of this does not end
    assert find(text) is not None


def test_findings_say_where() -> None:
    rule, secret = SECRETS[0]
    assert find(f"a {secret} b") == [(rule, 2, 2 + len(secret))]


# ---- on write ------------------------------------------------------------------------------------------------------

KEY = SHAPES["github-token"][0]
LONG = "line\n" * 4_000


def everything(folder: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def record_everywhere(client: Client, secret: str, **how: object) -> None:
    """Record a secret in each place where one can enter."""
    with client.resume("x", **how) as agent:  # type: ignore[arg-type]
        agent.record_turn("user", f"use {secret}", name=f"n {secret}", brief=f"b {secret}", status=secret)
        binary = {"type": "image", "data": b"key " + secret.encode()}
        agent.record_turn("user", [{"type": "text", "text": secret, secret: 1}, binary])
        agent.record_turn("tool", LONG + secret + LONG, call_id="c")
        encoded = base64.b64encode((LONG + secret).encode()).decode()
        agent.record_turn("user", [{"type": "file", "url": f"data:text/plain;base64,{encoded}"}])
        agent.record_turn("assistant", calls=[Call(id="c", name=f"t {secret}", args={"a": [{"b": secret}], secret: 2})])
        agent.record_turn("assistant", calls=[Call(id="d", name="t", args={"text": LONG + secret})])
        agent.record_turn("assistant", calls=[Call(id="e", name="t", args=json.dumps({"a": secret}))])
        agent.update_working_state(
            goal=secret, plan=[secret, {"step": "s", "why": secret}], progress=secret, focus=secret,
            decisions=[secret], open_questions=[secret], notes=secret,
        )  # fmt: skip
        agent.milestone(secret)
        agent.unpin(agent.pin(secret, id=f"pin {secret}"))
        agent.pin(secret)
        agent.set_pointer(f"n {secret}", "external", secret, f"note {secret}")
        agent.remove_pointer(f"n {secret}")
        agent.store_output("a" * 190 + " " + secret, name=secret, media_type=secret)
        agent.store_output(f"bytes {secret}".encode())
        agent.store_output(io.BytesIO((LONG * 100 + secret + LONG * 100).encode()))
        turn = Turn(role="user", content=secret, calls=[Call(id="c", name="t", args=(secret,), extra={"x": secret})])
        agent.submit(turn, Milestone(text=secret), Pin(id="p", text=secret, extra={"y": [secret]})).result()


def test_no_place_lets_a_secret_into_the_store(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client:
        record_everywhere(client, KEY)
        assert KEY not in client.briefing("x")
        with client.resume("x") as agent:  # and what the fold makes of it
            agent.record_turn("user", "done")
    stored = everything(tmp_path)
    assert KEY.encode() not in stored
    assert KEY[:20].encode() not in stored
    assert base64.b64encode(KEY.encode())[:20] not in stored
    assert stored.count(b"[redacted: github-token]") > 25


def test_the_same_finds_it_when_redaction_is_off(tmp_path: Path) -> None:
    for off in (None, False):
        folder = tmp_path / str(off)
        with Client(local_dir=folder) as client:
            record_everywhere(client, KEY, redact=off)
        assert everything(folder).count(KEY.encode()) > 25


def test_the_conversation_keeps_the_value(tmp_path: Path) -> None:
    content = [{"type": "text", "text": KEY}]
    call = Call(id=KEY, name="t", args={"password": NAMED, "a": [KEY]})
    record = Turn(role="user", content=KEY, calls=[call])
    with Client(local_dir=tmp_path).resume("x") as agent:
        turn = agent.prepare_turn("assistant", content, calls=[call], message_id=KEY, call_id=KEY)
        agent.submit(record).result()
    assert content == [{"type": "text", "text": KEY}]
    assert call == Call(id=KEY, name="t", args={"password": NAMED, "a": [KEY]})
    assert record.content == KEY
    assert (turn.message_id, turn.call_id, turn.calls[0].id) == (KEY, KEY, KEY)  # ids stay
    assert turn.content == [{"type": "text", "text": "[redacted: github-token]"}]
    assert turn.calls[0].args == {"password": "[redacted: named-secret]", "a": ["[redacted: github-token]"]}


def test_bytes_that_are_no_text_are_stored_as_they_are(tmp_path: Path) -> None:
    data = b"\xff\xfe\0" + _random.randbytes(3_000_000)
    clean_text = LONG.encode()
    with Client(local_dir=tmp_path).resume("x") as agent:
        refs = [agent.store_output(data), agent.store_output(io.BytesIO(data))]
        assert [agent.fetch_output(ref) for ref in refs] == [data, data]
        assert agent.store_output(clean_text) == agent.store_output(io.BytesIO(clean_text))


def test_a_private_key_across_two_parts_of_a_stream(tmp_path: Path) -> None:
    whole = PEM + "RSA PRIVATE KEY-----"
    text = "." * 99 + "\n"
    text = text * (CHUNK // 100 - 3) + whole + "\nend\n"
    assert text.index(whole) < CHUNK < text.index(whole) + len(whole)
    with Client(local_dir=tmp_path).resume("x") as agent:
        stored = agent.fetch_output(agent.store_output(io.BytesIO(text.encode()))).decode()
    assert stored == text.replace(whole, "[redacted: private-key]")


@pytest.mark.parametrize(
    "filler", ["word, word ", "{},", "word ", "字", "🙂", "a", "-----BEGIN ", "\n"], ids=ascii
)  # fmt: skip
def test_a_secret_anywhere_in_a_stream_without_lines(filler: str, tmp_path: Path) -> None:
    most = filler * (CHUNK // len(filler.encode()))
    with Client(local_dir=tmp_path).resume("x") as agent:
        for size in (CHUNK - 20, 2 * CHUNK):
            text = most[: size // len(filler.encode())] + " " + KEY + "," + most + "," + KEY + " " + most
            ref = agent.store_output(io.BytesIO(text.encode()))
            assert agent.fetch_output(ref).decode() == text.replace(KEY, "[redacted: github-token]")


@pytest.mark.parametrize("unit", ["word, ", "word "])
@pytest.mark.parametrize("back", [0, 20_000], ids=["the end of a chunk", "where one is cut at the latest"])
def test_a_stream_is_not_cut_within_a_secret(unit: str, back: int, tmp_path: Path) -> None:
    before = (unit * CHUNK)[: 2 * CHUNK - back - 20 - len(unit)] + " "
    text = before + KEY + " " + unit * CHUNK
    assert text.index(KEY) < 2 * CHUNK - back < text.index(KEY) + len(KEY)
    with Client(local_dir=tmp_path).resume("x") as agent:
        stored = agent.fetch_output(agent.store_output(io.BytesIO(text.encode())))
    assert stored.decode() == text.replace(KEY, "[redacted: github-token]")


@pytest.mark.parametrize("shift", ["", "a", "aa"])
def test_a_stream_is_not_cut_within_a_character(shift: str, tmp_path: Path) -> None:
    text = shift + "字" * (2 * CHUNK) + " " + KEY
    with Client(local_dir=tmp_path).resume("x") as agent:
        stored = agent.fetch_output(agent.store_output(io.BytesIO(text.encode())))
    assert stored.decode() == text.replace(KEY, "[redacted: github-token]")


def test_a_redactor_of_ones_own(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client:
        with client.resume("x", redact=lambda text: text.replace("Ann", "A")) as agent:
            agent.record_turn("user", "I am Ann.")
            agent.update_working_state(plan=[PlanStep(step="call Ann", status="doing")])
            assert agent.recent_turns()[0].content == "I am A."
            assert agent.working_state.plan == [PlanStep(step="call A", status="doing")]
        with pytest.raises(Invalid, match="redact is a function"):
            client.resume("x", redact="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("broken", [lambda text: 1 / 0, lambda text: None, lambda text: 3])
def test_what_a_redactor_failed_on_is_not_saved(
    broken: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(local_dir=tmp_path) as client:
        record_everywhere(client, KEY, redact=broken)
        with client.resume("x", defer_lease=True) as agent:
            assert next(agent.turns()).content == FAILED
    assert KEY.encode() not in everything(tmp_path)
    assert KEY not in caplog.text
    assert "a redactor raised" in caplog.text


# ---- errors and logs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: agent.record_turn(KEY),
        lambda agent: agent.record_turn("user", {"text": KEY}),
        lambda agent: agent.record_turn("user", brief=[KEY]),
        lambda agent: agent.update_working_state(goal={"is": KEY}),
        lambda agent: agent.update_working_state(decisions={KEY: 1}),
        lambda agent: agent.update_working_state(plan={KEY: 1}),
        lambda agent: agent.update_working_state(plan=[{"step": "s", "status": KEY}]),
        lambda agent: agent.milestone([KEY]),
        lambda agent: agent.fetch_output(KEY),
        lambda agent: agent.begin_action("t", KEY),
        lambda agent: agent.end_action(1, KEY),
        lambda agent: agent.submit(Turn(role=KEY)).result(),  # type: ignore[arg-type]
        lambda agent: agent.submit(Milestone(text={KEY: 1})).result(),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_error_that_quotes_what_was_given_has_no_secret_in_it(
    wrong: Callable[[ResumedAgent], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(local_dir=tmp_path).resume("x") as agent:
        agent.begin_action("t", "external")
        with pytest.raises(RecallError) as raised:
            wrong(agent)
    assert KEY not in str(raised.value) + str(raised.value.args) + caplog.text


def test_what_is_no_text_is_not_quoted_in_an_error(tmp_path: Path) -> None:
    name = {"customer": "Ann"}  # no secret of a known shape, and not for a log all the same
    with Client(local_dir=tmp_path).resume("x") as agent:
        for wrong in ({"goal": name}, {"decisions": name}, {"decisions": [name]}, {"plan": name}):
            with pytest.raises(Invalid, match="not dict"):
                agent.update_working_state(**wrong)
        with pytest.raises(Invalid, match="not dict"):
            agent.milestone(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where",
    [{"url": "postgresql://u:{}@h/db"}, {"url": "u:{}@h"}, {"store": "file://u:{}@h/x"}, {"store": "fs://u:{}@h/x"},
     {"store": "postgresql://u:{}%zz@h/db"}, {"store": "s3://u:{}@bucket"}],
)  # fmt: skip
def test_a_place_that_cannot_be_used_is_named_without_its_password(where: dict[str, str]) -> None:
    with pytest.raises(RecallError) as raised:
        Client(**{name: url.format(NAMED) for name, url in where.items()}, env={})  # type: ignore[arg-type]
    assert NAMED not in str(raised.value)


def test_what_a_resolver_raised_is_logged_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def asks(action: Action) -> None:
        raise ConnectionError(f"401 for https://u:{NAMED}@example.org with {KEY}")

    with Client(local_dir=tmp_path) as client:
        with client.resume("x") as agent:
            agent.begin_action("t", "external")
        with client.resume("x") as agent:
            assert agent.reconcile(asks).open
    assert "its resolver raised ConnectionError" in caplog.text
    assert KEY not in caplog.text
    assert NAMED not in caplog.text
