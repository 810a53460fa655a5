"""Units: what they return, what they raise, and what is stored then."""

from __future__ import annotations

import gc
import weakref

import pytest
from notes import (
    INSERT,
    Call,
    Refused,
    add,
    add_and_raise,
    count_commits,
    nobody_leads,
    numbers_in,
    wait_for_queue,
)

from cmdx.stores import Statements, StoreError


def test_a_unit_returns_its_value_once_it_is_committed(store):
    assert store.transact(add(7)) == 7
    assert numbers_in(store) == [7]


def test_a_unit_gets_statements(store):
    assert isinstance(store.transact(lambda statements: statements), Statements)


def test_rows_are_tuples_of_plain_values(store):
    def unit(statements):
        statements.execute(INSERT, id=1, words="é%:x'")
        statements.execute(INSERT, id=None, words=None)
        return statements.execute("select id, words, 0.5 from note order by words")

    rows = store.transact(unit)

    assert sorted(rows, key=str) == [(1, "é%:x'", 0.5), (None, None, 0.5)]
    assert {type(row) for row in rows} == {tuple}


def test_a_statement_without_rows_returns_an_empty_list(store):
    def unit(statements):
        return [
            statements.execute(INSERT, id=1, words=""),
            statements.execute("update note set id = 2 where id = :id", id=1),
            statements.execute("select * from note where id = :id", id=1),
            statements.execute("delete from note"),
        ]

    assert store.transact(unit) == [[], [], [], []]


def test_a_unit_sees_what_it_has_written(store):
    def unit(statements):
        statements.execute(INSERT, id=1, words="")
        return statements.execute("select count(*) from note")

    assert store.transact(unit) == [(1,)]


def test_a_change_tells_how_many_rows_it_has_changed(store):
    def unit(statements):
        rows = [{"id": number, "words": ""} for number in range(3)]
        statements.executemany(INSERT, rows)
        return [
            statements.change("update note set words = :new", new="x"),
            statements.change("update note set id = :id where id > :id", id=1),
            statements.change("delete from note where id = :id", id=7),
        ]

    assert store.transact(unit) == [3, 1, 0]


def test_executemany_writes_all_rows(store):
    rows = [{"id": number, "words": "many"} for number in range(600)]

    store.transact(lambda statements: statements.executemany(INSERT, rows))

    assert numbers_in(store) == list(range(600))


def test_true_is_stored_as_one(store):
    store.transact(lambda statements: statements.execute(INSERT, id=True, words=""))

    assert numbers_in(store) == [1]


@pytest.mark.parametrize("number", [2**53, -(2**62), 1e300, 0.1, float("inf")])
def test_numbers_come_back_as_they_are(store, number):
    kind = "bigint" if isinstance(number, int) else "double precision"

    def unit(statements):
        statements.execute(f"create table number (value {kind})")
        statements.execute("insert into number (value) values (:value)", value=number)
        return statements.execute(
            "select value from number where value = :value", value=number
        )

    assert store.transact(unit) == [(number,)]


def test_rows_can_be_locked_by_one_text_on_all_databases(store):
    store.transact(add(1))
    sql = "select id from note where id > :least order by id for update skip locked"

    rows = store.transact(lambda statements: statements.execute(sql, least=0))

    assert rows == [(1,)]


# -- units that raise -------------------------------------------------------------


def test_nothing_is_stored_of_a_unit_that_raises(store):
    with pytest.raises(Refused):
        store.transact(add_and_raise(1))

    assert numbers_in(store) == []


def test_a_lone_unit_that_raises_is_run_once(store):
    runs = []

    def unit(_statements):
        runs.append(1)
        raise Refused

    with pytest.raises(Refused):
        store.transact(unit)

    assert len(runs) == 1


def test_a_unit_that_raises_hurts_nobody_else(store):
    units = [add(0), add_and_raise(1), add(2), add_and_raise(3), add(4)]
    with nobody_leads(store):
        calls = [Call(store.transact, unit) for unit in units]
        wait_for_queue(store, len(units))

    for number, call in enumerate(calls):
        if number % 2:
            with pytest.raises(Refused):
                call.result()
        else:
            assert call.result() == number
    assert numbers_in(store) == [0, 2, 4]


def test_a_wrong_statement_hurts_nobody_else(store):
    def wrong(statements):
        statements.execute(INSERT, id=9, words="")
        statements.execute("insert into nothing values (1)")

    with nobody_leads(store):
        calls = [Call(store.transact, unit) for unit in (add(0), wrong, add(1))]
        wait_for_queue(store, 3)

    assert [calls[0].result(), calls[2].result()] == [0, 1]
    with pytest.raises(StoreError, match=r"a statement failed on .*nothing"):
        calls[1].result()
    assert numbers_in(store) == [0, 1]


def test_a_wrong_statement_has_the_error_of_the_driver_as_its_cause(store):
    with pytest.raises(StoreError) as caught:
        store.transact(lambda statements: statements.execute("selec 1"))

    assert type(caught.value.__cause__).__module__.startswith(("sqlite3", "psycopg"))


def test_the_error_of_a_unit_is_told_without_a_reference_cycle(store):
    class Lost(Exception):
        pass

    gc.disable()
    try:
        try:
            store.transact(add_and_raise(1, Lost))
        except Lost as error:
            seen = weakref.ref(error)
        assert seen() is None
    finally:
        gc.enable()


# -- groups -----------------------------------------------------------------------


def test_callers_that_wait_go_together_in_one_transaction(store):
    commits = count_commits(store)
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(20)]
        wait_for_queue(store, 20)

    assert sorted(call.result() for call in calls) == list(range(20))
    assert len(commits) == 1


def test_units_of_many_threads_are_all_committed(store):
    def write(name):
        for number in range(50):
            store.transact(add(50 * name + number), sync=True)

    calls = [Call(write, name) for name in range(16)]
    for call in calls:
        call.result()

    assert numbers_in(store) == list(range(800))


def test_a_queue_longer_than_a_group_is_served_in_several(store, monkeypatch):
    monkeypatch.setattr("cmdx.stores.commits.MOST_UNITS", 3)
    commits = count_commits(store)
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(8)]
        wait_for_queue(store, 8)

    assert sorted(call.result() for call in calls) == list(range(8))
    assert len(commits) == 3


def test_a_lone_caller_starts_no_thread(store):
    import threading

    before = set(threading.enumerate())
    for number in range(3):
        store.transact(lambda statements, number=number: statements.now + number)

    assert set(threading.enumerate()) <= before  # those of other tests may end


# -- time -------------------------------------------------------------------------


def test_now_is_the_time_of_the_clock(store, instant):
    before = store.now()
    instant.advance(3600)

    assert store.now() == pytest.approx(before + 3600, abs=30)


def test_now_follows_a_clock_that_is_set_back(store, instant):
    before = store.now()
    instant.advance(-3600)

    assert store.now() == pytest.approx(before - 3600, abs=30)
    assert store.transact(add(1)) == 1
    assert store.wait(0, since=-1)


def test_the_time_of_a_unit_is_that_of_its_caller_whoever_leads(store):
    import contextvars

    from cmdx.testing import instant

    def in_a_week():
        with instant() as clock:
            clock.advance(7 * 86_400)
            return store.transact(lambda statements: statements.now), store.now()

    with nobody_leads(store):
        later = Call(contextvars.copy_context().run, in_a_week)
        wait_for_queue(store, 1)
        present = Call(store.transact, lambda statements: statements.now)
        wait_for_queue(store, 2)

    then, now = later.result()
    assert then == pytest.approx(now, abs=30)
    assert then - present.result() == pytest.approx(7 * 86_400, abs=30)


# -- points -----------------------------------------------------------------------


def test_tests_are_called_at_named_points(store):
    points = []
    store.at = points.append
    store.transact(lambda _statements: points.append("the unit"))

    assert points == ["before begin", "the unit", "before commit", "after commit"]


# -- the end ----------------------------------------------------------------------


def test_a_closed_store_says_so(store):
    store.close()

    with pytest.raises(StoreError, match=r"was closed. Open it again with"):
        store.transact(add(1))
    with pytest.raises(StoreError, match="was closed"):
        store.version()
    with pytest.raises(StoreError, match="was closed"):
        store.wait(0)


def test_a_unit_that_closes_its_own_store_is_told_so(store):
    call = Call(store.transact, lambda _statements: store.close())

    with pytest.raises(StoreError, match=r"a unit called close\(\).*after the unit"):
        call.result()
    assert store.transact(add(1)) == 1


def test_a_store_can_be_closed_twice(store):
    store.close()
    store.close()


def test_a_store_is_closed_at_the_end_of_a_block(place):
    with place.open() as store:
        assert store.transact(add(1)) == 1

    with pytest.raises(StoreError, match="was closed"):
        store.transact(add(1))


def test_those_in_the_queue_are_told_when_the_store_is_closed(store):
    with nobody_leads(store):
        calls = [Call(store.transact, add(number)) for number in range(3)]
        wait_for_queue(store, 3)
        store._is_closed = True

    for call in calls:
        with pytest.raises(StoreError, match="was closed"):
            call.result()
    store._is_closed = False
    assert numbers_in(store) == []


def test_a_store_shows_where_it_is(store):
    assert repr(store) == f"{type(store).__name__}({store.name!r})"
