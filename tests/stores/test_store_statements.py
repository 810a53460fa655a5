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
    ("sql", "returns_rows", "always_writes", "writes_unseen"),
    [
        ("select 1", True, False, False),
        ("select 'insert into', 1 for update", True, False, False),
        ("(select 1)", True, False, False),
        ("select 1 into x", True, False, True),
        ("with x as (select 1) select * from x", True, False, False),
        ("with x as (select 1) delete from y", True, False, True),
        ("with x as (delete from y returning z) select z from x", True, False, True),
        ("create table x (y integer)", True, False, True),
        ("insert into x values (:a)", False, True, False),
        (" Insert into x values (:a)", False, True, False),
        ("-- why\ninsert into x values (:a)", False, True, False),
        ("insert into x values (1) on conflict do nothing", False, False, False),
        ("insert into x values ('on conflict')", False, True, False),
        ("insert into x values (1) returning y", True, True, False),
        ("insert into x values (1) returning(y)", True, True, False),
        ("update x set y = 1", False, False, False),
        ("delete from x", False, False, False),
        ("delete from x returning y", True, False, False),
        ("", True, False, True),
    ],
)
def test_it_is_known_what_a_statement_answers(
    sql, returns_rows, always_writes, writes_unseen
):
    query = postgres_query(sql)

    assert query.returns_rows is returns_rows
    assert query.always_writes is always_writes
    assert query.writes_unseen is writes_unseen


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


def test_now_is_the_time_of_the_store_unless_it_is_given(store):
    def unit(statements):
        cast = "select cast(:now as double precision)"
        ((bound,),) = statements.execute(cast)
        ((given,),) = statements.execute(cast, now=7.0)
        return bound - statements.now, given

    assert store.transact(unit) == (0.0, 7.0)


def test_now_is_bound_in_changes_of_one_row_and_of_many(store):
    def unit(statements):
        add = "insert into note (id, words) values (:id, cast(:now as text))"
        statements.change(add, id=1)
        statements.executemany(add, [{"id": 2}, {"id": 3, "now": 7.0}])
        rows = statements.execute("select words from note order by id")
        return [float(words) - statements.now for (words,) in rows]

    of_one, of_many, given = store.transact(unit)

    assert of_one == of_many == pytest.approx(0.0, abs=1.0)
    assert given < -1e6


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
