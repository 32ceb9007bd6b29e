"""The OpenAPI document, and a page to read it and to try it. The page needs nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.responses import Response

from .service import Call

_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"


async def openapi_json(call: Call) -> Response:
    """This API as an OpenAPI 3.1 document."""
    return Response(call.service.document, media_type="application/json")


async def docs(call: Call) -> Response:
    """A page to read and try this API."""
    return Response(_file("page.html"), 200, {"Content-Security-Policy": _POLICY}, "text/html")


async def script(call: Call) -> Response:
    """The page's script."""
    return Response(_file("page.js"), media_type="text/javascript")


async def style(call: Call) -> Response:
    """The page's style."""
    return Response(_file("page.css"), media_type="text/css")


@cache
def _file(name: str) -> bytes:
    return files("polign_db.server").joinpath("static", name).read_bytes()
