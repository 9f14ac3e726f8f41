"""The control API: health, operation counts and faults over HTTP, on the namespace's own port.

* `GET /$control/health`
* `GET /$control/operations`
* `GET /$control/limits`: the tier, its limits, and how often they were applied
* `GET /$control/metrics`: the same and the operations, in the text format of Prometheus
* `GET /$control/faults`, `POST /$control/faults` with a fault as JSON, `DELETE /$control/faults`
  (all of them) and `DELETE /$control/faults/{id}`

On a loopback address every process of the machine may use it, as with the well-known key; on any
other address it requires a token with the Manage claim, as the administration API does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.http import Request, Response

PREFIX = "/$control"


class ControlApi:
    """Answers requests below `/$control`.

    Args:
        faults: The faults of the namespace.
        health: Returns the content of `health`.
        operations: Returns the content of `operations`.
        limits: Returns the content of `limits`.
        is_safe_to_refuse: Whether a fault that closes the port can be cleared on another port.
        authorize: Raises UnauthorizedError for a request that is not allowed.
    """

    def __init__(
        self,
        faults: Faults,
        *,
        health: Callable[[], dict[str, Any]],
        operations: Callable[[], dict[str, Any]],
        limits: Callable[[], dict[str, Any]],
        is_safe_to_refuse: Callable[[], bool],
        authorize: Callable[[Request], None],
    ) -> None:
        self._faults = faults
        self._health = health
        self._operations = operations
        self._limits = limits
        self._is_safe_to_refuse = is_safe_to_refuse
        self._authorize = authorize

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        try:
            self._authorize(request)
        except UnauthorizedError as error:
            return _json(error.http_status, {"error": error.description})
        if "origin" in request.headers:  # web pages must not use it
            return _json(403, {"error": "the control API does not answer web pages"})
        path = request.target.partition("?")[0].removeprefix(PREFIX).strip("/")
        name, _, rest = path.partition("/")
        match request.method, name:
            case "GET", "health":
                return _json(200, self._health())
            case "GET", "operations":
                return _json(200, self._operations())
            case "GET", "limits":
                return _json(200, self._limits())
            case "GET", "metrics":
                text = metrics(self._operations(), self._limits())
                return Response(200, text.encode(), {"Content-Type": "text/plain; version=0.0.4"})
            case "GET", "faults":
                return _json(200, [fault.as_dict() for fault in self._faults.active])
            case "POST", "faults":
                return self._inject(request.body)
            case "DELETE", "faults":
                if rest and not rest.isdigit():
                    return _json(400, {"error": f"{rest!r} is not the id of a fault"})
                self._faults.clear(int(rest) if rest else None)
                return Response(204)
            case _:
                known = "health, operations, limits, metrics and faults"
                return _json(404, {"error": f"the control API has {known}"})

    def _inject(self, body: bytes) -> Response:
        try:
            wanted = json.loads(body)
        except ValueError:
            return _json(400, {"error": "a fault is a JSON object"})
        if not isinstance(wanted, dict) or not isinstance(wanted.get("kind"), str):
            return _json(400, {"error": 'a fault is a JSON object with a "kind"'})
        kind = wanted.pop("kind")
        if kind == "refuse" and wanted.get("lasts") is None and not self._is_safe_to_refuse():
            text = 'set "lasts", in seconds: this fault closes the port and could not be cleared'
            return _json(400, {"error": text})
        try:
            fault = self._faults.inject(kind, **wanted)
        except (TypeError, ValueError) as exc:
            return _json(400, {"error": str(exc)})
        return _json(201, fault.as_dict())


def metrics(operations: dict[str, Any], limits: dict[str, Any]) -> str:
    """Return the counters of a broker in the text format of Prometheus."""
    lines = ["# TYPE pairbus_broker_operations_total counter"]
    for entity, kinds in operations.items():
        lines += [
            f"pairbus_broker_operations_total{_labels(entity, kind)} {counts['billable']}"
            for kind, counts in kinds.items()
        ]
    lines.append("# TYPE pairbus_broker_throttled_operations_total counter")
    for entity, kinds in limits["throttled"].items():
        lines += [
            f"pairbus_broker_throttled_operations_total{_labels(entity, kind)} {count}"
            for kind, count in kinds.items()
        ]
    for name in ("idle_links_detached", "idle_connections_closed"):
        lines.append(f"# TYPE pairbus_broker_{name}_total counter")
        lines.append(f"pairbus_broker_{name}_total {limits[name]}")
    return "\n".join(lines) + "\n"


def _labels(entity: str, operation: str) -> str:
    escaped = entity.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{entity="{escaped}",operation="{operation}"}}'


def _json(status: int, content: Any) -> Response:
    return Response(
        status, json.dumps(content).encode() + b"\n", {"Content-Type": "application/json"}
    )
