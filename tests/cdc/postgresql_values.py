"""What a rule sees of a value of PostgreSQL's, by where: the format, the mode, a snapshot."""

import json

NOT_SENT, ASIDE, NULL = "not sent", "set aside", "VOID"

Seen = dict[str, str]
"""What a rule sees, type and text, by words that say where: `plain` JSON, `snapshot`, an option's value.

The key that has most of the words that hold counts, of several the last. `~`: PostgreSQL would not read that text as
the value that it has, because it is in another form, or another value.
"""


def number(text: str, kind: str, data: str, double: str, back: str = "") -> Seen:
    """A decimal: the bytes of plain JSON in base64. `back`: `~` where a double is another number."""
    return {
        "": f"{kind} {text}",
        "plain": f"~STRING {data}",
        "string": f"STRING {text}",
        "double": f"{back}DOUBLE {double}",
    }


def special(text: str, name: str) -> Seen:
    """A decimal that is none: Debezium sends null where decimals are precise."""
    return {"": NULL, "string": f"~STRING {name}", "double": f"DOUBLE {text}", "double plain": f"STRING {text}"}


def own(scale: int, data: str) -> str:
    return f'~OBJECT<scale: BIGINT, value: STRING> {{"scale":{scale},"value":"{data}"}}'


def stamp(text: str, millis: int, unit: int = 1, micros: int = 0, kind: str = "TIMESTAMP_NTZ") -> Seen:
    """A timestamp that all have. `unit`: of its number in adaptive mode, 1,000 where that counts microseconds."""
    cut = text[: 23 if micros % 1000 else 26]
    return {
        "": f"{kind} {text}",
        "plain": f"~BIGINT {millis * unit + (micros if unit > 1 else 0)}",
        "connect": f"{'~' if cut != text else ''}TIMESTAMP {cut}",
        "connect plain": f"~BIGINT {millis}",
        "microseconds plain": f"~BIGINT {millis * 1000 + micros}",
        "isostring": f"STRING {text.replace(' ', 'T')}Z",
        "nanoseconds plain": f"~BIGINT {(millis * 1000 + micros) * 1000}",
    }


def infinite(text: str, most: int, millis: int, adaptive: int, iso: str) -> Seen:
    """A timestamp(3) or (6). `most`: the number of most modes."""
    numbers = {
        "plain": f"~BIGINT {most}",
        "adaptive plain": f"~BIGINT {adaptive}",
        "connect plain": f"~BIGINT {millis}",
    }
    return {"": f"STRING {text}", **numbers, "isostring": f"~STRING {iso}"}


INFINITY = ("infinity", 2**63 - 1, 9223372036825200000)
MINUS_INFINITY = ("-infinity", -(2**63), -9223372036832400000)
ISO, MINUS_ISO = "+292278994-08-16T23:00:00Z", "-292275055-05-16T23:00:00Z"


def far(text: str, millis: int) -> Seen:
    """A timestamp(3) that no reader of tables has: text. Its nanoseconds do not fit, so Debezium sends null."""
    iso = f"~STRING {text.replace(' ', 'T')}Z"
    found = {"": f"~STRING {text}", "plain": f"~BIGINT {millis}", "microseconds plain": f"~BIGINT {millis * 1000}"}
    return {**found, "isostring": iso, "nanoseconds": NULL}


def day(text: str, days: int, snapshot: int | None = None, at: str = "") -> Seen:
    """A date. `snapshot`, `at`: what java.sql.Date makes of it in a snapshot."""
    kind = "DATE" if "0001" <= text <= "9999-12-31" else "~STRING"
    found = {"": f"{kind} {text}", "plain": f"~BIGINT {days}", "isostring": f"{kind.replace('DATE', 'STRING')} {text}Z"}
    if snapshot is not None:
        found |= {
            "snapshot": f"~DATE {at}",
            "snapshot plain": f"~BIGINT {snapshot}",
            "snapshot isostring": f"~STRING {at}Z",
        }
    return found


def clock(text: str, millis: int, unit: int = 1, micros: int = 0) -> Seen:
    """A time of day. PostgreSQL's 24:00 is another in mode isostring."""
    cut = text[:12].ljust(9, ".").ljust(12, "0") if len(text) < 12 else text[:12]
    whole = millis * 1000 + micros
    return {
        "": f"~BIGINT {whole if unit > 1 else millis}",
        "connect": f"{'~' if micros else ''}STRING {cut}",
        "connect plain": f"~BIGINT {millis}",
        "microseconds": f"~BIGINT {whole}",
        "isostring": "~STRING 00:00:00Z" if text == "24:00:00" else f"STRING {text}Z",
        "nanoseconds": f"~BIGINT {whole * 1000}",
    }


def unknown(text: str) -> Seen:
    """Of a type that Debezium has no type for: with include.unknown.datatypes its text's bytes, here in hexadecimal."""
    return {"": NOT_SENT, "microseconds": f"~STRING {text.encode().hex()}"}


def shape(wkb: str, **extensions: str) -> Seen:
    names = ", ".join(f"{name}: STRING" for name in extensions)
    kind = f"~OBJECT<extensions: OBJECT<{names}>, srid: VOID, wkb: {{0}}>"
    text = json.dumps({"extensions": extensions, "srid": None, "wkb": wkb}, separators=(",", ":"))
    return {"": f"{kind.format('BINARY')} {text}", "plain": f"{kind.format('STRING')} {text}"}


def same(text: str) -> Seen:
    return {"": text}


def expected(seen: Seen, where: set[str]) -> str:
    """What a rule sees there, by the key that says most of where."""
    keys = [key for key in seen if set(key.split()) <= where]
    return seen[max(keys, key=lambda key: (len(key.split()), keys.index(key)))]
