"""One statement for many rows: each parameter of the single one becomes a column of what is sent."""

from herdsman.db.statements import BulkWrite

SQL = "UPDATE t SET a=%s::VARCHAR, b=(t.b + %s::BIGINT), c=%s::TIMESTAMP WITH TIME ZONE WHERE t.id = %s::VARCHAR AND t.a = %s::VARCHAR AND t.d = %s::VARCHAR"
NAMES = ("given_a", "one", "given_c", "key", "fixed", "given_a")


def test_parameters_become_columns_and_what_is_fixed_stays() -> None:
    bulk = BulkWrite(SQL, NAMES, {"one": 1, "fixed": "x"}, [])
    assert bulk.sql == (
        "UPDATE t SET a=sent.given_a, b=(t.b + %s::BIGINT), c=sent.given_c"
        " FROM unnest(%s::VARCHAR[], %s::TIMESTAMP WITH TIME ZONE[], %s::VARCHAR[]) AS sent(given_a, given_c, key)"
        " WHERE t.id = sent.key AND t.a = %s::VARCHAR AND t.d = sent.given_a"
    )


def test_values_are_sent_as_columns_in_the_order_of_the_places() -> None:
    bulk = BulkWrite(SQL, NAMES, {"one": 1, "fixed": "x"}, [("given_c", lambda value: value * 10)])
    rows = [{"given_a": "p", "given_c": 1, "key": "k1"}, {"given_a": "q", "given_c": 2, "key": "k2"}]
    assert bulk.bind(rows) == [
        1,
        ["p", "q"],
        [10, 20],
        ["k1", "k2"],
        "x",
    ]


def test_an_insert_takes_its_rows_from_the_same_columns() -> None:
    sql = "INSERT INTO t (a, b, c) VALUES (%s::VARCHAR, coalesce((SELECT max(n) FROM u), %s::INTEGER), %s)"
    bulk = BulkWrite(sql, ("given_a", "zero", "given_c"), {"zero": 0}, [])
    assert bulk.sql == (
        "INSERT INTO t (a, b, c) SELECT sent.given_a, coalesce((SELECT max(n) FROM u), %s::INTEGER), sent.given_c"
        " FROM unnest(%s::VARCHAR[], %s::DOUBLE PRECISION[]) AS sent(given_a, given_c)"
    )
    assert bulk.bind([{"given_a": "p", "given_c": 1.5}, {"given_a": "q", "given_c": None}]) == [
        0,
        ["p", "q"],
        [1.5, None],
    ]
