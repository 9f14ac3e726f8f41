"""Values as text: masked secrets, errors in one line, durations, and data as JSON types."""

import dataclasses
import datetime as dt
import decimal
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Any

ERROR_LENGTH = 400
BRIEF_LENGTH = 110

_SECRETS = re.compile(
    r"((?:SharedAccessKey|SharedAccessSignature|AccountKey)=|\bsig=|\bBearer\s+)"
    r"(?:SharedAccessSignature\s+)?[^;&\s\"']+",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """Return the text with keys, signatures and tokens replaced by ***."""
    return _SECRETS.sub(r"\1***", text)


def one_line(exc: BaseException) -> str:
    """Return an exception's message as one masked line."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    return mask(text if len(text) <= ERROR_LENGTH else text[: ERROR_LENGTH - 1] + "…")


def brief(text: Any) -> str:
    """Return a reason without the SDK's phrases around it, in at most `BRIEF_LENGTH` characters."""
    short = re.sub(r"\s*Error condition: \S+$", "", str(text or "").strip())
    short = re.sub(r"(^|: )[^:]* due to exception: ", r"\1", short, count=1)
    return short if len(short) <= BRIEF_LENGTH else short[: BRIEF_LENGTH - 1] + "…"


def duration(seconds: float | None) -> str:
    """Return seconds as people read them: 45s, 3m 20s, 2h 05m, 3d 4h."""
    if seconds is None:
        return "-"
    total = int(max(0.0, seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m {total % 60:02}s"
    if total < 86400:
        return f"{total // 3600}h {total % 3600 // 60:02}m"
    return f"{total // 86400}d {total % 86400 // 3600}h"


def to_plain(value: Any) -> Any:
    """Return the value as types that JSON knows.

    Records with `to_json` use it; other dataclasses become objects. Datetimes become ISO strings,
    timedeltas seconds, Decimals strings, enums their values, paths strings.
    """
    if hasattr(value, "to_json"):
        return to_plain(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(to_plain(k)): to_plain(v) for k, v in value.items()}
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    return str(value)
