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
import time
from typing import TYPE_CHECKING, Any

from pairbus.broker.auth.jwt import verify_token
from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.server.http import Request, Response

if TYPE_CHECKING:
    from pairbus.broker.server.server import Broker

PREFIX = "/$control"


class ControlApi:
    """Answers requests below `/$control`.

    Args:
        broker: The broker; requests arrive only while it runs or starts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._faults = broker.faults
        self._settings = broker.settings

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
                return _json(200, self._broker.operations())
            case "GET", "limits":
                return _json(200, self._limits())
            case "GET", "metrics":
                text = metrics(self._broker.operations(), self._limits())
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
        has_other_port = self._broker.control_address is not None
        if kind == "refuse" and wanted.get("lasts") is None and not has_other_port:
            text = 'set "lasts", in seconds: this fault closes the port and could not be cleared'
            return _json(400, {"error": text})
        try:
            fault = self._faults.inject(kind, **wanted)
        except (TypeError, ValueError) as exc:
            return _json(400, {"error": str(exc)})
        return _json(201, fault.as_dict())

    def _authorize(self, request: Request) -> None:
        """Require the Manage claim, except on loopback addresses."""
        if self._settings.is_loopback:
            return
        token = request.headers.get("authorization", "")
        claims = verify_token(token, "", self._broker.key_ring, self._broker.now())
        claims.require(AccessRight.MANAGE, "")

    def _health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "namespace": self._settings.namespace,
            "port": self._broker.listener.address[1],
            "connections": len(self._broker.connections),
            "uptime_seconds": round(time.time() - self._broker.started_at, 3),
            "faults": len(self._faults.active),
        }

    def _limits(self) -> dict[str, Any]:
        """The tier, the limits in force and how often they were applied."""
        refused: dict[str, dict[str, int]] = {}
        for (entity, operation), count in self._broker.throttle.refused.items():
            refused.setdefault(entity, {})[operation] = count
        return {
            "tier": self._settings.effective_tier.value,
            "credits_per_second": self._settings.credits_per_second,
            "idle_link_timeout": self._settings.idle_link_timeout,
            "idle_connection_timeout": self._settings.idle_connection_timeout,
            "throttled": refused,
            "idle_links_detached": self._broker.idle_links,
            "idle_connections_closed": self._broker.idle_connections,
        }


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
