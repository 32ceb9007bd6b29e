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
from hashlib import sha1, sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polign_recall import Call, Client, Invalid, Milestone, Pin, PlanStep, Turn, redact
from polign_recall.cleaning import CHUNK, FAILED
from polign_recall.redact import find

_random = random.Random(7)


def chars(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_random.choices(alphabet, k=count))


HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + "234567"
PEM = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "\n".join(chars(64) for _ in range(12)) + "\n-----END "
SHAPES = {
    "aws-access-key": ["AK" + "IA" + chars(16, UPPER), "AS" + "IA" + chars(16, UPPER)],
    "github-token": [*("gh" + kind + "_" + chars(36) for kind in "pousr"), "github" + "_pat_" + chars(82)],
    "gitlab-token": ["gl" + "pat-" + chars(20)],
    "slack-token": ["xo" + f"x{kind}-" + chars(12, string.digits) + "-" + chars(24) for kind in "abprs"],
    "anthropic-key": ["sk-" + "ant-api03-" + chars(93) + "AA"],
    "openai-key": ["sk-" + chars(48), "sk-" + "proj-" + chars(100)],
    "google-api-key": ["AI" + "za" + chars(35)],
    "google-oauth-token": ["ya" + "29." + chars(60)],
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
