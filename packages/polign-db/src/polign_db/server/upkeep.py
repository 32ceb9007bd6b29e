"""Operations for whoever runs the server: is it alive, does its store answer, how is it doing."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from . import metrics as prometheus
from .service import Call, as_json
from .shapes import Health


async def healthz(call: Call) -> Response:
    """The process runs."""
    return as_json(Health("ok"))


async def readyz(call: Call) -> Response:
    """The store answers."""
    await asyncio.to_thread(call.service.store.get, "readyz")
    return as_json(Health("ready"))


async def metrics(call: Call) -> Response:
    """Counters in Prometheus' text format."""
    return Response(call.service.metrics.text(), media_type=prometheus.MEDIA_TYPE)
