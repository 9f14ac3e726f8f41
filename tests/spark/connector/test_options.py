"""The connector's options: every missing or wrong one is named, and no secret is shown."""

import pytest

from pairbus.spark.options import OPTIONS, OptionError, Target, parse
from pairbus.spark.schema import spark_schema
from pairbus.syphon.columns import COLUMNS, arrow_schema, select

KEY = "S3cr3tKeyValue"
CS = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={KEY}"


def test_names_are_case_insensitive_and_values_are_typed():
    options = parse(
        {"CONNECTIONSTRING": CS, "Queue": "orders", "maxmessagespertrigger": "7"}, "read"
    )
    assert options.entities() == ["orders"]
    assert options["maxMessagesPerTrigger"] == 7
    assert options["mode"] == "peek"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "connectionString: is missing"),
        ({"connectionString": CS}, "queue: name one"),
        ({"connectionString": CS, "topic": "t"}, "subscription: is missing"),
        ({"connectionString": CS, "queue": "q", "mode": "steal"}, "mode: must be one of peek"),
        ({"connectionString": CS, "queue": "q", "maxBytesPerTrigger": "x"}, "maxBytesPerTrigger"),
        ({"connectionString": CS, "queue": "q", "longPoll": "-1"}, "longPoll: must be seconds"),
        ({"connectionString": CS, "queue": "q", "longPoll": "nan"}, "longPoll: must be seconds"),
        ({"connectionString": CS, "queue": "q", "aliases": "maybe"}, "aliases: must be true or"),
        (
            {"connectionString": CS, "queue": "q", "zz": "red"},
            "zz: there is no such option; there are connectionString, ",
        ),
        (
            {"connectionString": CS, "qeue": "q"},
            "qeue: there is no such option; did you mean queue",
        ),
        ({"fullyQualifiedNamespace": "h", "queue": "q"}, "credential: is missing"),
        ({"connectionString": "nonsense", "queue": "q"}, "connectionString: has no"),
    ],
)
def test_what_is_wrong_is_named(given, named):
    with pytest.raises(OptionError, match=named.replace("(", r"\(")):
        parse(given, "read")


def test_several_problems_are_named_at_once():
    with pytest.raises(OptionError) as caught:
        parse({"mode": "x", "longPoll": "y"}, "read")
    for name in ("mode", "longPoll", "connectionString", "queue"):
        assert name in str(caught.value)


def test_errors_and_reprs_show_no_key():
    with pytest.raises(OptionError) as caught:
        parse({"connectionString": CS, "mode": CS}, "read")
    assert KEY not in str(caught.value)
    options = parse({"connectionString": CS, "queue": "q"}, "read")
    assert KEY not in repr(options)
    assert KEY not in repr(options.target)


def test_a_signature_is_refused_where_it_would_show():
    text = "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=x&sig=abc"
    with pytest.raises(OptionError, match="would show in plans"):
        parse({"connectionString": text, "queue": "q"}, "read")


def test_a_secret_is_looked_up_where_it_is_used(monkeypatch, tmp_path):
    target = parse({"connectionString": "env:CONTOSO", "queue": "q"}, "read").target
    with pytest.raises(OptionError, match="CONTOSO is not set"):
        target.connection_string()
    monkeypatch.setenv("CONTOSO", CS)
    assert target.connection_string() == CS
    (tmp_path / "secret").write_text(CS + "\n")
    assert Target(reference=f"file:{tmp_path}/secret").connection_string() == CS
    with pytest.raises(OptionError, match="No such file"):
        Target(reference=f"file:{tmp_path}/none").connection_string()


def test_subscriptions_and_dead_letters_have_paths():
    both = {"connectionString": CS, "topic": "t", "subscription": "s", "subQueue": "deadletter"}
    assert parse(both, "read").entities() == ["t/Subscriptions/s/$DeadLetterQueue"]
    assert parse({"connectionString": CS, "queue": "a, b"}, "read").entities() == ["a", "b"]


def test_a_sink_settles_where_the_rows_came_from():
    options = parse({"connectionString": CS, "settle": "true"}, "write")
    assert options.settle_target == options.target
    other = {"connectionString": CS, "settle": "true", "settleConnectionString": "env:DR"}
    assert parse(other, "write").settle_target == Target(reference="env:DR")


def test_names_are_camel_case_and_unique():
    names = [option.name for option in OPTIONS]
    assert len({name.lower() for name in names}) == len(names)
    assert all(name[0].islower() and name.isalnum() for name in names)


def test_columns_are_chosen_by_name():
    assert [c.name for c in select(["BODY", "entity"])] == ["entity", "body"]
    assert select(["all"]) == list(COLUMNS)
    assert select(["body"], aliases=True)[1].name == "aliasPath"
    with pytest.raises(ValueError, match="no column 'colour'"):
        select(["colour"])


def test_the_arrow_schema_equals_the_one_that_spark_derives():
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = select(["all"], aliases=True)
    assert arrow_schema(columns).equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))
