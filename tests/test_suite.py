"""What the tests themselves have to be like."""

from __future__ import annotations


def test_the_names_of_tests_are_the_same_in_every_run(request):
    """An address in a name keeps pytest-xdist from dividing the tests."""
    names = [item.nodeid for item in request.session.items]

    assert [name for name in names if " at 0x" in name] == []
