"""One SQL text for all databases."""

from __future__ import annotations

import pytest

from cmdx.stores import StoreError
from cmdx.stores.statements import postgres_query, sqlite_query

# The text, the text for SQLite, the text for PostgreSQL, and the names of its values.
TEXTS = [
    ("select 1", "select 1", "select 1", ()),
    ("select :a, :b", "select :a, :b", "select $1, $2", ("a", "b")),
    ("select :b, :a, :b", "select :b, :a, :b", "select $1, $2, $1", ("b", "a")),
    ("select :a_1x", "select :a_1x", "select $1", ("a_1x",)),
    ("select x::text, :a", "select x::text, :a", "select x::text, $1", ("a",)),
    ("select ':a', :a", "select ':a', :a", "select ':a', $1", ("a",)),
    ("select 'it''s :a'", "select 'it''s :a'", "select 'it''s :a'", ()),
    ('select ":a"', 'select ":a"', 'select ":a"', ()),
    ("select 1 -- :a\n, :b", "select 1 -- :a\n, :b", "select 1 -- :a\n, $1", ("b",)),
    ("select /* :a */ :b", "select /* :a */ :b", "select /* :a */ $1", ("b",)),
    ("x like '%' || :a", "x like '%' || :a", "x like '%' || $1", ("a",)),
    ("x % :a = 0", "x % :a = 0", "x % $1 = 0", ("a",)),
    ("x[1:2]", "x[1:2]", "x[1:2]", ()),
    ("select é, :a", "select é, :a", "select é, $1", ("a",)),
    ("select 1 for update", "select 1", "select 1 for update", ()),
    ("select 1\nFOR UPDATE", "select 1", "select 1\nFOR UPDATE", ()),
    (
        "select 1 for update skip locked limit :n",
        "select 1 limit :n",
        "select 1 for update skip locked limit $1",
        ("n",),
    ),
    (
        "select 1 for no key update",
        "select 1",
        "select 1 for no key update",
        (),
    ),
    ("select 'for update'", "select 'for update'", "select 'for update'", ()),
    ("select for_update", "select for_update", "select for_update", ()),
]


@pytest.mark.parametrize(("sql", "sqlite", "postgres", "names"), TEXTS)
def test_a_text_is_translated_for_each_database(sql, sqlite, postgres, names):
    query = postgres_query(sql)

    assert sqlite_query(sql) == sqlite
    assert query.text.decode() == postgres
    assert query.names == names


@pytest.mark.parametrize(
    ("sql", "returns_rows", "always_writes"),
    [
        ("select 1", True, False),
        ("with x as (select 1) delete from y", True, False),
        ("create table x (y integer)", True, False),
        ("insert into x values (:a)", False, True),
        (" Insert into x values (:a)", False, True),
        ("-- why\ninsert into x values (:a)", False, True),
        ("insert into x values (1) on conflict do nothing", False, False),
        ("insert into x values ('on conflict')", False, True),
        ("insert into x values (1) returning y", True, True),
        ("update x set y = 1", False, False),
        ("delete from x", False, False),
        ("delete from x returning y", True, False),
    ],
)
def test_only_who_reads_has_to_wait(sql, returns_rows, always_writes):
    query = postgres_query(sql)

    assert (query.returns_rows, query.always_writes) == (returns_rows, always_writes)


def test_values_may_have_any_name(store):
    sql = "select cast(:sql as text), cast(:self as text), cast(:rows as text)"

    rows = store.transact(
        lambda statements: statements.execute(sql, sql="a", self="b", rows=None)
    )

    assert rows == [("a", "b", None)]


def test_values_that_are_not_used_do_no_harm(store):
    assert store.transact(
        lambda statements: statements.execute("select 1", more="than needed")
    ) == [(1,)]


def test_a_missing_value_is_an_error(store):
    with pytest.raises(StoreError, match="missing"):
        store.transact(
            lambda statements: statements.execute(
                "select id from note where id = :missing"
            )
        )


@pytest.mark.parametrize("text", ["", "%s %(x)s", "\\", "'", "\N{SNOWMAN}", "a\nb"])
def test_texts_come_back_as_they_are(store, text):
    def unit(statements):
        statements.execute("insert into note values (1, :words)", words=text)
        return statements.execute("select words from note where words = :w", w=text)

    assert store.transact(unit) == [(text,)]
