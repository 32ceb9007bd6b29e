"""Azure Blob Storage: `az://account/container/prefix?endpoint=https://host`.

Credentials come from the `AZURE_...` variables below, or from the machine: managed identity, workload identity.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from obstore.store import AzureStore

from ._answers import Service
from ._obstore import ObstoreBucket
from ._urls import check_endpoint, parse
from .bucket import BucketStore

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, RetryConfig

_RIGHTS = dict.fromkeys(
    ("create", "read", "list", "delete"),
    "the role 'Storage Blob Data Contributor' on the container, or a SAS with the rights r, c, w, d and l",
)
VARIABLES = {
    "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
    "AZURE_STORAGE_ACCESS_KEY": "account_key",
    "AZURE_STORAGE_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_key",
    "AZURE_STORAGE_SAS_KEY": "sas_key",
    "AZURE_CLIENT_ID": "client_id",
    "AZURE_CLIENT_SECRET": "client_secret",
    "AZURE_TENANT_ID": "tenant_id",
    "AZURE_AUTHORITY_HOST": "authority_host",
    "AZURE_FEDERATED_TOKEN_FILE": "federated_token_file",
    "AZURE_USE_AZURE_CLI": "use_azure_cli",
}
"""Where credentials are looked for, and obstore's names for them. Without any, the managed identity is asked."""


def open_url(url: str, env: Mapping[str, str] | None) -> BucketStore:
    """The store at an `az:` URL; no request is made. See `open_store`."""
    place = parse(url, "az", 2, ("endpoint",))
    account, container = place.root
    variables = os.environ if env is None else env
    endpoint = place.options.get("endpoint")
    address = check_endpoint(endpoint) if endpoint else f"https://{account}.blob.core.windows.net"
    given = {option: variables[name] for name, option in reversed(VARIABLES.items()) if variables.get(name)}

    def connect(options: ClientConfig, retries: RetryConfig) -> AzureStore:
        return AzureStore(
            container, account_name=account, endpoint=address, config=cast("AzureConfig", given),
            client_options={**options, "allow_http": address.startswith("http:")}, retry_config=retries,
        )  # fmt: skip

    service = Service(f"container {container!r} at {address}", _RIGHTS)
    return BucketStore(ObstoreBucket(connect, service), place.prefix, place.url({"endpoint": endpoint}))
