"""Redaction: secrets of known shapes in a text, replaced by a marker before the text is saved.

The shapes are those that their issuers document and that the public rules of gitleaks (MIT) and detect-secrets
(Apache-2.0) look for; the patterns here are our own. They run in time that is linear in the text: whatever follows a
repetition without a bound is either nothing or a character that the repetition cannot match.

What has no shape of its own (a password) is known by the name in front of it, and only when it looks random. Hashes,
UUIDs, ids, paths and base64 data have no such name, and are left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from math import log2
from typing import Final, NamedTuple

from .secret_shapes import SHAPES

Redactor = Callable[[str], str]
"""Gives the text to save for a text. It may be asked about its own answer again, and must then leave it as it is."""

_SHORTEST: Final = 8
"""Characters of the shortest text that has a secret in it; ids and names of roles are often shorter."""
_LONG_WORD: Final = 20
"""Characters without white space among them; most shapes are at least that long."""
_MIN_ENTROPY: Final = 2.8
"""Bits per character (Shannon) of what is taken for random: 8 characters of which 7 are different have 2.75."""
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_PLAIN_NAME: Final = r"(?a:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+){2,})"
_NOT_SECRET: Final = r"\.{0,2}/\S*/|~/|\$[A-Za-z_{(]|[{<]|%[A-Za-z_({]|\[redacted"
"""How paths, references to variables, placeholders and our own markers begin."""
_NOT_SECRET_NAMES: Final = (
    "next", "page", "continuation", "cursor", "sync", "input", "output", "clientrequest", "idempotency"
)  # fmt: skip
"""What stands before `token` for a place in a list, or for the name of a request."""
# Any case; written so that the search can skip all that does not begin like a name.
_SECRET_NAMES: Final = (
    r"[pPsStTaA](?:(?<=[pP])(?i:ass(?:word|wd|phrase)|wd|rivate[_-]?key)|(?<=[sS])(?i:ecret(?:[_-]?key)?)"
    r"|(?<=[tT])(?i:oken)|(?<=[aA])(?i:pi[_-]?key|cc(?:ess|ount)[_-]?key))"
)
# A shape begins where no word goes on: but `\n` written as two characters, and `%20`, are not part of a word.
_START: Final = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))"
_QUOTES: Final = r"[\"'`\\]{0,4}"
_ASSIGNED: Final = rf"{_SECRET_NAMES}{_QUOTES}\]?\s{{0,3}}(?:=>|:=|==?|:)\s{{0,3}}"


class Finding(NamedTuple):
    """A secret in a text: the rule that found it, and where it begins and ends (characters)."""

    rule: str
    start: int
    end: int


class _Rule(NamedTuple):
    """`pattern` is tried where a text has one of `triggers`; its last group, if it has any, is what goes."""

    name: str
    triggers: str
    pattern: str
    accepts: Callable[[re.Match[str]], bool] | None = None


def redact(text: str) -> str:
    """The text with each secret of a known shape replaced, as in `[redacted: github-token]`.

    Takes a few microseconds for a text of 200 characters that has none. Redacting twice gives the same.
    """
    while found := find(text):  # each round makes what is not a marker shorter
        text = _replaced(text, found)
    return text


def redact_field(name: str, value: str) -> str:
    """`redact`, for a value that a field of this name has: with `password` as a name, a random value is a secret."""
    text = redact(value)
    return "[redacted: named-secret]" if is_named_secret(name, text) else text


def is_named_secret(name: str, value: str) -> bool:
    """Whether a value is a secret because of the name of its field."""
    return _is_name(name) and _is_random(value)


def find(text: str) -> list[Finding]:
    """The secrets of known shapes in a text, in order; none overlaps another."""
    if len(text) < _SHORTEST:
        return []
    lowered = text.lower()
    words = [word for word in lowered.split() if len(word) >= _LONG_WORD]
    rules = _triggered(_IN_LONG_WORDS, " ".join(words)) if words else []
    found = [finding for rule in rules + _triggered(_ANYWHERE, lowered) for finding in _matches(rule, text)]
    return _apart(found) if found else []


def _triggered(pairs: tuple[tuple[str, _Rule], ...], lowered: str) -> list[_Rule]:
    return list(dict.fromkeys([rule for trigger, rule in pairs if trigger in lowered]))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: all of them together take longer than importing the package."""
    return re.compile(pattern, re.ASCII)


def _matches(rule: _Rule, text: str) -> Iterator[Finding]:
    for match in _compiled(rule.pattern).finditer(text):
        if rule.accepts is None or rule.accepts(match):
            yield Finding(rule.name, *match.span(match.lastgroup or 0))


def _apart(found: list[Finding]) -> list[Finding]:
    """Where findings overlap, one from the first's start to the last's end, by the rule of the first."""
    apart: list[Finding] = []
    for finding in sorted(found, key=lambda each: (each.start, -each.end)):
        if apart and finding.start < apart[-1].end:
            apart[-1] = apart[-1]._replace(end=max(apart[-1].end, finding.end))
        else:
            apart.append(finding)
    return apart


def _replaced(text: str, found: list[Finding]) -> str:
    pieces, end = [], 0
    for finding in found:
        pieces += [text[end : finding.start], f"[redacted: {finding.rule}]"]
        end = finding.end
    return "".join([*pieces, text[end:]])


def _is_name(name: str) -> bool:
    """Whether what a field of this name has is a secret."""
    match = re.search(_SECRET_NAMES + r"\Z", name)
    return match is not None and not name[: match.start()].rstrip("_-").lower().endswith(_NOT_SECRET_NAMES)


def _is_random(value: str) -> bool:
    """Whether a value looks like a secret: no path, placeholder or UUID, letters with digits, and of some entropy."""
    if len(value) < 8 or re.match(_NOT_SECRET, value) or "://" in value or any(map(str.isspace, value)):
        return False
    if not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))) or re.fullmatch(_UUID, value):
        return False
    size = len(value)
    return -sum(n / size * log2(n / size) for n in Counter(value).values()) >= _MIN_ENTROPY


def _has_body(match: re.Match[str]) -> bool:
    """Not for the first and last line of a key with nothing between them."""
    body = match[0].partition("KEY")[2].partition("-----END")[0]
    return re.search(r"[A-Za-z0-9+/=]{8}", body) is not None


def _is_token(match: re.Match[str]) -> bool:
    return _is_random(match["secret"])


def _is_password(match: re.Match[str]) -> bool:
    """Not for `https://user:$TOKEN@host` and `https://user:***@host`."""
    return not match["secret"].startswith(("$", "{", "***"))


def _is_assigned(match: re.Match[str]) -> bool:
    """Whether a name with a value behind it stands for a secret.

    Without quotes not for `token = reply.token2`, `token = sha256(data)`, a type, `token: Token2`, nor for a part of a
    longer name, `arn:aws:secretsmanager:eu-west-1:1:secret:name-a1b2c3`.
    """
    value, bare = match[match.lastgroup or 0], match.lastgroup == "bare"
    before = match.string[max(0, match.start() - 20) : match.start()].rstrip("_-").lower()
    if before.endswith(_NOT_SECRET_NAMES) or not _is_random(value):
        return False
    if not bare:
        return True
    if before.endswith(":"):
        return False
    behind = match.string[match.end() : match.end() + 1]
    is_type = match[0][: -len(value)].rstrip().endswith(":") and sum(map(str.isdigit, value)) < 2
    return not is_type and behind not in ("(", "[", "{") and not re.fullmatch(_PLAIN_NAME, value)


def _pairs(*rules: _Rule) -> tuple[tuple[str, _Rule], ...]:
    """Each trigger, in lower case, with its rule."""
    return tuple((trigger, rule) for rule in rules for trigger in rule.triggers.lower().split())


_ANYWHERE: Final = _pairs(
    _Rule(
        "private-key", "PRIVATE",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]*+(?:-(?!----)[^-]*+)*+-----END [A-Z0-9 ]{1,60}-----"
        r"|(?:(?:\s|\\[nr])*+(?:[A-Za-z0-9+/=]{24,}+|(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{1,100}))++)",
        _has_body,
    ),
    _Rule(
        "aws-secret-key", "secret",
        r"(?i:secret[ _-]?(?:access[ _-]?)?key)[\"'`\\\s:=>,]{1,10}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    _Rule(
        "authorization", "authorization",
        rf"(?i:authorization{_QUOTES}\s{{0,3}}[:=,]\s{{0,3}}{_QUOTES}(?:bearer|basic|token)\s{{1,3}})"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{8,})", _is_token,
    ),
    _Rule("authorization", "bearer", r"(?i:bearer\s{1,3})(?P<secret>[A-Za-z0-9._~+/=-]{20,})", _is_token),
    _Rule(
        "url-password", "://", r"://[^\s/:@\"'`<>]{0,200}:(?P<secret>[^\s/\"'`<>]{1,200})@(?=[A-Za-z0-9\[])",
        _is_password,
    ),
    _Rule(
        "named-secret", "pass pwd secret token key",
        _ASSIGNED + r"(?:\\{0,3}[\"'`](?P<secret>[^\s\"'`\\]{8,})|(?P<bare>[^\s\"'`\\,;&<>()\[\]{}]{8,}))",
        _is_assigned,
    ),
)  # fmt: skip
_IN_LONG_WORDS: Final = _pairs(
    *(_Rule(name, triggers, _START + pattern) for name, triggers, pattern in SHAPES),
    _Rule(
        "github-token", "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh[pousr]_(?:[A-Za-z0-9]{36,}|[A-Za-z0-9]{1,20}_eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{8,}+){2})",
    ),
    _Rule("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{50,}"),
    _Rule("aws-bedrock-key", "ABSK", _START + r"ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    _Rule("aws-bedrock-key", "bedrock-api-key-", r"bedrock-api-key-[A-Za-z0-9+/=]{40,}"),
    _Rule(
        "azure-key", "AccountKey= SharedAccessKey=",
        r"(?i:(?:Account|SharedAccess)Key=)(?P<secret>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    _Rule("azure-signature", "sig=", r"[?&;]sig=(?P<secret>[A-Za-z0-9%+/]{40,70}=?)"),
    _Rule(
        "slack-webhook", "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/]{20,})",
    ),
    _Rule("discord-webhook", "/api/webhooks/", r"/api/webhooks/\d{15,20}/(?P<secret>[A-Za-z0-9_-]{60,})"),
    _Rule("teams-webhook", ".webhook.office.com/", r"\.webhook\.office\.com/webhookb2/(?P<secret>[A-Za-z0-9@/-]{80,})"),
    _Rule("polign-key", "plgn_", r"plgn_[0-9a-f]{16}_[0-9a-f]{64}"),
    _Rule(
        "jwt", "eyJ",
        r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))"
        r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}",
    ),
)  # fmt: skip
