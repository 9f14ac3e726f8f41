"""The live page: `pairbus dashboard`.

`app` has the routes, `guard` the access control, `serve` runs it. Every number comes from
`pairbus.monitoring`.
"""

from pairbus.extras import needs

with needs("web"):
    import jinja2 as _jinja2
    import starlette as _starlette
    import uvicorn as _uvicorn

__all__: list[str] = []
del _jinja2, _starlette, _uvicorn
