"""``Context``: one bag of values, by attribute and by item."""

from __future__ import annotations

import copy
import json
import pickle
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cmdx import CmdxError, Context, Task, UnknownContextKey, retry_on

METHODS = sorted(name for name in dir(Context) if not name.startswith("_"))


# -- reading and writing ------------------------------------------------------------


def test_a_value_is_read_and_set_by_attribute_and_by_item():
    context = Context(name="Ada")
    context.age = 36
    context["born"] = 1815

    assert (context.name, context["name"]) == ("Ada", "Ada")
    assert (context.age, context["age"]) == (36, 36)
    assert (context.born, context["born"]) == (1815, 1815)


def test_it_is_made_of_a_mapping_and_keywords_and_copies_them():
    values = {"name": "Ada", "age": 35}
    context = Context(values, age=36)
    context.name = "Grace"

    assert context.to_dict() == {"name": "Grace", "age": 36}
    assert values == {"name": "Ada", "age": 35}


def test_it_is_made_of_another_context():
    first = Context(name="Ada")
    second = Context(first)
    second.name = "Grace"

    assert first.name == "Ada"


@pytest.mark.parametrize("name", ["self", "values", "more", "key", "cls", "default"])
def test_any_keyword_can_be_a_key(name):
    context = Context(**{name: 1})
    context.update(**{name: 2})

    assert context[name] == 2


def test_a_value_is_removed_by_attribute_and_by_item():
    context = Context(name="Ada", age=36, born=1815)
    del context.name
    del context["age"]

    assert context.to_dict() == {"born": 1815}


def test_false_values_are_values():
    context = Context(none=None, zero=0, empty="")

    assert context.none is None
    assert context.get("none", "default") is None
    assert context.setdefault("zero", 1) == 0
    assert context.pop("empty", "default") == ""
    assert "none" in context


def test_an_empty_context_is_still_something():
    assert bool(Context()) is True
    assert len(Context()) == 0


# -- unknown keys -------------------------------------------------------------------


def test_an_unknown_attribute_raises_with_a_suggestion():
    context = Context(name="Ada", age=36)

    with pytest.raises(UnknownContextKey, match="'nmae'; did you mean 'name'"):
        _ = context.nmae


def test_an_unknown_attribute_that_resembles_none_raises_with_the_cure():
    with pytest.raises(UnknownContextKey, match=r"'total'.*context\.get\('total'\)"):
        _ = Context(name="Ada").total


def test_an_unknown_attribute_is_an_attribute_error_to_python():
    context = Context(name="Ada")

    assert issubclass(UnknownContextKey, AttributeError)
    assert issubclass(UnknownContextKey, CmdxError)
    assert not hasattr(context, "total")
    assert getattr(context, "total", 3) == 3


def test_removing_an_unknown_attribute_raises_with_a_suggestion():
    context = Context(name="Ada")

    with pytest.raises(UnknownContextKey, match="did you mean 'name'"):
        del context.nmae


def test_an_unknown_item_raises_a_key_error():
    context = Context(name="Ada")

    with pytest.raises(KeyError):
        _ = context["nmae"]
    with pytest.raises(KeyError):
        del context["nmae"]
    with pytest.raises(KeyError):
        context.pop("nmae")


def test_keys_that_are_no_text_do_not_spoil_the_suggestion():
    with pytest.raises(UnknownContextKey, match="did you mean 'name'"):
        _ = Context({1: "one", None: "none", "name": "Ada"}).nmae


def test_the_error_about_an_unknown_key_can_be_pickled():
    with pytest.raises(UnknownContextKey) as caught:
        _ = Context(name="Ada").nmae

    twin = pickle.loads(pickle.dumps(caught.value))

    assert str(twin) == str(caught.value)
    assert (type(twin), twin.name) == (UnknownContextKey, "nmae")


def test_an_unknown_key_in_work_fails_the_task(run):
    class Misspell(Task[None]):
        def work(self):
            return self.context.nmae

    result = run(Misspell, name="Ada")

    assert isinstance(result.cause, UnknownContextKey)
    assert result.reason.startswith("[UnknownContextKey] the context has no key 'nmae'")
    assert "did you mean 'name'" in result.reason


# -- like a dict --------------------------------------------------------------------

KEYS = st.text() | st.sampled_from([*METHODS, "_values", "name", "class", "work"])
ATTRIBUTES = st.sampled_from(["name", "age", "total", "class", "_private", "work"])
VALUES = st.none() | st.integers() | st.text() | st.lists(st.integers())


class LikeADict(RuleBasedStateMachine):
    """Whatever is done to a context and to a dict, they stay the same."""

    @initialize(values=st.dictionaries(KEYS, VALUES))
    def begin(self, values):
        self.context = Context(values)
        self.model = dict(values)

    @rule(key=KEYS, value=VALUES)
    def set_item(self, key, value):
        self.context[key] = value
        self.model[key] = value

    @rule(key=ATTRIBUTES, value=VALUES)
    def set_attribute(self, key, value):
        setattr(self.context, key, value)
        self.model[key] = value

    @rule(key=KEYS, default=VALUES)
    def get(self, key, default):
        assert self.context.get(key, default) == self.model.get(key, default)
        assert self.context.get(key) == self.model.get(key)

    @rule(key=ATTRIBUTES)
    def get_attribute(self, key):
        missing = object()
        expected = self.model.get(key, missing)
        assert getattr(self.context, key, missing) == expected

    @rule(key=KEYS, default=VALUES)
    def set_default(self, key, default):
        found = self.context.setdefault(key, default)
        assert found == self.model.setdefault(key, default)

    @rule(key=KEYS, default=VALUES)
    def pop(self, key, default):
        assert self.context.pop(key, default) == self.model.pop(key, default)

    @rule(values=st.dictionaries(KEYS, VALUES), wrapped=st.booleans())
    def update(self, values, wrapped):
        self.context.update(Context(values) if wrapped else values)
        self.model.update(values)

    @rule(values=st.dictionaries(ATTRIBUTES, VALUES))
    def update_by_keywords(self, values):
        self.context.update(**values)
        self.model.update(**values)

    @rule(key=KEYS)
    def delete(self, key):
        if key in self.model:
            del self.context[key]
            del self.model[key]
        else:
            with pytest.raises(KeyError):
                del self.context[key]

    @rule()
    def pickle(self):
        self.context = pickle.loads(pickle.dumps(self.context))

    @rule()
    def copy(self):
        self.context = self.context.copy()

    @rule()
    def clear(self):
        self.context.clear()
        self.model.clear()

    @invariant()
    def are_the_same(self):
        assert self.context.to_dict() == self.model
        assert dict(self.context) == self.model
        assert list(self.context) == list(self.model)
        assert len(self.context) == len(self.model)
        assert list(self.context.keys()) == list(self.model.keys())
        assert list(self.context.values()) == list(self.model.values())
        assert list(self.context.items()) == list(self.model.items())
        assert all(key in self.context for key in self.model)
        assert all(self.context[key] == self.model[key] for key in self.model)
        assert self.context == self.model
        assert self.context == Context(self.model)


TestLikeADict = LikeADict.TestCase


def test_contexts_differ_when_their_values_do():
    assert Context(name="Ada") != Context(name="Grace")
    assert Context(name="Ada") != {"name": "Grace"}
    assert Context() != 3


def test_a_context_has_no_hash_because_it_changes():
    with pytest.raises(TypeError):
        hash(Context())


def test_to_dict_returns_a_dict_of_its_own():
    context = Context(name="Ada")
    context.to_dict()["name"] = "Grace"

    assert context.name == "Ada"


def test_its_repr_shows_keys_and_values():
    assert repr(Context(name="Ada", age=36)) == "Context(name='Ada', age=36)"


# -- dig ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("order",), {"lines": [{"sku": "A"}, {"sku": "B"}], "paid": False}),
        (("order", "paid"), False),
        (("order", "lines", 1, "sku"), "B"),
        (("order", "lines", -1, "sku"), "B"),
        (("inner", "name"), "Ada"),
        (("missing",), None),
        (("order", "missing"), None),
        (("order", "missing", "deeper"), None),
        (("order", "lines", 7), None),
        (("order", "lines", "sku"), None),
        (("order", "paid", "deeper"), None),
        (("none", "deeper"), None),
        (("get",), None),
        (("order", "items"), None),
    ],
)
def test_dig_follows_a_path_as_far_as_it_goes(path, found):
    lines = [{"sku": "A"}, {"sku": "B"}]
    context = Context(
        order={"lines": lines, "paid": False}, inner=Context(name="Ada"), none=None
    )

    assert context.dig(*path) == found


def test_dig_may_be_told_what_to_return_when_nothing_is_there():
    context = Context(order={"paid": None})

    assert context.dig("order", "missing", default=3) == 3
    assert context.dig("order", "paid", default=3) is None


# -- deep merge ---------------------------------------------------------------------


def merged(left, right):
    """Return what the documentation of ``deep_merge`` promises, the plain way."""
    result = dict(left)
    for key, value in right.items():
        both = isinstance(left.get(key), dict) and isinstance(value, dict)
        result[key] = merged(left[key], value) if both else value
    return result


NESTED = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
TREES = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=3)


@given(left=TREES, right=TREES, wrapped=st.booleans())
def test_deep_merge_merges_mappings_at_every_depth(left, right, wrapped):
    context = Context(copy.deepcopy(left))
    given_values = copy.deepcopy(right)
    context.deep_merge(Context(given_values) if wrapped else given_values)

    assert context.to_dict() == merged(left, right)
    assert given_values == right


@given(left=TREES, right=TREES)
def test_deep_merge_changes_no_mapping_it_was_made_of(left, right):
    original = copy.deepcopy(left)
    context = Context(left)
    context.deep_merge(right)

    assert left == original


def test_deep_merge_replaces_what_is_no_mapping():
    context = Context(lines=[1, 2], order={"id": 7}, name="Ada")
    context.deep_merge({"lines": [3], "order": "none", "name": {"first": "Ada"}})

    assert context.to_dict() == {
        "lines": [3],
        "order": "none",
        "name": {"first": "Ada"},
    }


def test_deep_merge_takes_any_mapping():
    context = Context(order=MappingProxyType({"id": 7}))
    context.deep_merge(MappingProxyType({"order": MappingProxyType({"paid": True})}))

    assert context.order == {"id": 7, "paid": True}


# -- copies -------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [Context.copy, copy.deepcopy])
def test_a_copy_is_deep(copied):
    context = Context(lines=[1], order={"id": 7})
    twin = copied(context)
    twin.lines.append(2)
    twin.order["id"] = 8
    twin.name = "Ada"

    assert isinstance(twin, Context)
    assert context.to_dict() == {"lines": [1], "order": {"id": 7}}


def test_a_shallow_copy_shares_values_but_not_keys():
    context = Context(lines=[1])
    twin = copy.copy(context)
    twin.name = "Ada"

    assert "name" not in context
    assert twin.lines is context.lines


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_with_every_protocol(protocol):
    context = Context(name="Ada", inner=Context(get=1), items=[1, 2])

    assert pickle.loads(pickle.dumps(context, protocol)) == context


@pytest.mark.parametrize(
    "copied",
    [Context.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))],
)
def test_a_context_that_holds_itself_can_be_copied_and_pickled(copied):
    context = Context(name="Ada")
    context.holder = {"context": context}

    twin = copied(context)

    assert twin.name == "Ada"
    assert twin.holder["context"] is not context
    assert twin.holder["context"].name == "Ada"


# -- keys named like methods --------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_key_named_like_a_method_works_by_item_and_leaves_the_method_alone(name):
    context = Context({name: 1, "name": "Ada"})
    context[name] = 2

    assert context[name] == 2
    assert context.get(name) == 2
    assert name in context
    assert callable(getattr(context, name))
    assert context.to_dict() == {name: 2, "name": "Ada"}
    assert context.pop(name) == 2


@pytest.mark.parametrize("name", METHODS)
def test_setting_an_attribute_named_like_a_method_is_refused_with_the_cure(name):
    context = Context()

    with pytest.raises(AttributeError, match=rf"context\['{name}'\]"):
        setattr(context, name, 1)
    assert len(context) == 0


def test_keys_named_like_methods_never_break_the_library(run, lines):
    names = [*METHODS, "work", "execute", "context", "errors", "metadata", "logger"]
    inputs = dict.fromkeys(names, 7)

    class Child(Task[dict]):
        def work(self):
            return self.context.copy().to_dict()

    @retry_on(TimeoutError, delay=0)
    class Parent(Task[dict], log_fields=("context.get", "context.items")):
        def work(self):
            if self.attempt == 0:
                raise TimeoutError
            self.context.deep_merge(self.context)
            self.context.update(self.context)
            return Child.execute(self).value

    result = run(Parent, **inputs)

    assert result.value == inputs
    assert json.loads(result.to_json())["value"] == inputs
    assert run(Child, result).value == inputs
    assert run(Child, result.context.to_dict()).value == inputs
    line = next(line for line in lines if "context.get" in line)
    assert (line["context.get"], line["context.items"]) == (7, 7)
