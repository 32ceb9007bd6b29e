"""S3 and everything that speaks its language: `s3://bucket/prefix?endpoint=https://host&region=name`.

Credentials come from where the AWS tools look for them, by botocore: environment, profiles, SSO, web identity,
containers, instance roles. Those that expire are renewed while the store is in use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.credentials import Credentials, EnvProvider  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]
from obstore.store import S3Store

from ..errors import StoreDenied, StoreUnsupported
from ._answers import Service
from ._obstore import ObstoreBucket
from ._urls import check_endpoint, parse
from .bucket import BucketStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

TRUSTED = timedelta(seconds=60)
"""How long credentials are used before botocore is asked again, which renews them 10 minutes before they expire."""

_RIGHTS = {
    "create": "s3:PutObject",
    "read": "s3:GetObject, and s3:ListBucket, without which S3 does not say that an object is absent",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}
_SETTINGS = {
    "profile": "AWS_PROFILE",
    "config_file": "AWS_CONFIG_FILE",
    "credentials_file": "AWS_SHARED_CREDENTIALS_FILE",
    "region": "AWS_DEFAULT_REGION",
}
"""Botocore's settings and the variables they come from."""


def open_url(url: str, env: Mapping[str, str] | None) -> BucketStore:
    """The store at an `s3:` URL; no request is made. See `open_store`. Raises `StoreDenied` without credentials."""
    place = parse(url, "s3", 1, ("endpoint", "region"))
    bucket = place.root[0]
    if bucket.endswith("--x-s3"):
        raise StoreUnsupported("S3 directory buckets list in no order", hint="use a general purpose bucket")
    try:
        session = _session(env)
        scoped = session.get_scoped_config()
        credentials = session.get_credentials()
        default_region = session.get_config_variable("region")
    except BotoCoreError as error:
        raise StoreDenied(f"the AWS settings cannot be used: {error}") from error
    if credentials is None:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the machine a role"
        raise StoreDenied("there are no AWS credentials", hint=hint)
    variables = os.environ if env is None else env
    endpoint = (
        place.options.get("endpoint")
        or variables.get("AWS_ENDPOINT_URL_S3")
        or variables.get("AWS_ENDPOINT_URL")
        or scoped.get("endpoint_url")
    )
    region = place.options.get("region") or variables.get("AWS_REGION") or default_region or "us-east-1"
    address = check_endpoint(endpoint) if endpoint else _aws(region)
    provider = _Provider(credentials)

    def connect(options: ClientConfig, retries: RetryConfig) -> S3Store:
        return S3Store(
            bucket, config={
                "endpoint": address, "aws_endpoint_url_s3": address, "region": region, "conditional_put": "etag",
                "virtual_hosted_style_request": False, "disable_bulk_delete": True,
            },
            client_options={**options, "allow_http": address.startswith("http:")}, retry_config=retries,
            credential_provider=provider,
        )  # fmt: skip

    service = Service(f"bucket {bucket!r} at {address}", _RIGHTS)
    again = place.url({"endpoint": endpoint, "region": place.options.get("region")})
    return BucketStore(ObstoreBucket(connect, service), place.prefix, again)


def _session(env: Mapping[str, str] | None) -> Session:
    """A botocore session that takes its settings from `env` in place of the process's environment."""
    session = Session()
    if env is None:
        return session
    for name, variable in _SETTINGS.items():
        if variable in env:
            session.set_config_variable(name, env[variable])
    chain = session.get_component("credential_provider")
    chain.remove(EnvProvider.METHOD)
    chain.providers.insert(0, EnvProvider(environ=env))
    return session


def _aws(region: str) -> str:
    """AWS's own endpoint, named so that no variable of the process's environment can lead elsewhere."""
    return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


class _Provider:
    """Hands botocore's credentials to obstore for a minute at a time."""

    refresh_threshold = timedelta(0)

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self) -> S3Credential:
        now = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + TRUSTED,
        }
