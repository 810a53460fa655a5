"""What an engine refuses, before anything is sent; no broker is needed for that."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime

import pytest
from celery import Celery
from celery import Task as CeleryTask
from celery.exceptions import Ignore, OperationalError, Reject
from celery.signals import before_task_publish
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import CurrentMessage
from engine_tasks import AwaitedSteady, Echo, Halts, Stamp, Steady
from kombu import Exchange, Queue

import cmdx
from cmdx import CmdxError, DefinitionError, Task, Workflow, required
from cmdx.engines import EngineMessage, TaskFailed
from cmdx.engines.celery import CeleryEngine
from cmdx.engines.dramatiq import DramatiqEngine
from cmdx.exceptions import FinishedTaskError
from cmdx.wire import RefusedInputError, WireError

GOOD = {"name": "n", "script": []}
TAGGED = {"__type__": "money", "__value__": 1}


def new_celery():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    app.conf.task_always_eager = True  # nothing is ever sent
    return CeleryEngine(app)


def new_dramatiq():
    return DramatiqEngine(StubBroker())


@pytest.fixture(params=[new_celery, new_dramatiq], ids=["celery", "dramatiq"])
def engine(request):
    engine = request.param()
    engine.register(Steady, Stamp)
    return engine


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (Steady, TypeError, r"an engine takes an invocation.*Steady\(...\)"),
        (7, TypeError, "an engine takes an invocation.* got 7"),
        (Halts(**GOOD), DefinitionError, r"write engine.register\(Halts\)"),
        (Steady(name="n"), RefusedInputError, "cannot be enqueued: script is required"),
        (Steady(name="n", script=7), RefusedInputError, "script must be a list"),
    ],
)
def test_what_is_no_right_invocation_is_refused(engine, given, error, words):
    with pytest.raises(error, match=f"(?i){words}"):
        engine.enqueue(given)


def test_an_invocation_that_has_run_is_refused(engine):
    task = Stamp()
    task.run()

    with pytest.raises(FinishedTaskError, match=r"engine.enqueue\(Stamp\(...\)\)"):
        engine.enqueue(task)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after": -1}, "after must be a finite number of seconds"),
        ({"at": datetime(2030, 1, 1)}, "at must be a datetime with a time zone"),  # noqa: DTZ001
        ({"after": 1, "at": datetime(2030, 1, 1)}, "got both"),  # noqa: DTZ001
        ({"priority": "high"}, "priority must be a whole number, got 'high'"),
        ({"priority": True}, "priority must be a whole number, got True"),
    ],
)
def test_wrong_options_are_refused(engine, options, words):
    with pytest.raises(DefinitionError, match=words):
        engine.enqueue(Stamp(), **options)


def test_a_task_is_registered_once(engine):
    with pytest.raises(DefinitionError, match="Steady is registered already"):
        engine.register(Halts, Steady)

    with pytest.raises(DefinitionError, match="Halts is registered already"):
        engine.register(Halts, Halts)

    engine.register(Halts)  # nothing of it was done before


def test_only_classes_of_tasks_are_registered(engine):
    with pytest.raises(TypeError, match="register takes classes of tasks"):
        engine.register(Halts(**GOOD))


def test_a_local_class_needs_a_name(engine):
    class Local(Task[None]):
        def work(self): ...

    with pytest.raises(WireError, match="is defined in a function"):
        engine.register(Local)


def test_an_input_that_engines_cannot_send_is_refused(engine):
    class Selfish(Task[None], name="engines.selfish"):
        me: int = required(alias="self")

        def work(self): ...

    with pytest.raises(DefinitionError, match="Give it another name, or an alias"):
        engine.register(Selfish)


def test_a_base_class_by_which_celery_retries_is_refused():
    class Again(CeleryTask):
        autoretry_for = (Exception,)

    with pytest.raises(DefinitionError, match=r"base class .*Again has autoretry_for"):
        new_celery().register(Stamp, base=Again)


def test_an_app_whose_base_class_retries_is_refused():
    class Again(CeleryTask):
        autoretry_for = (Exception,)

    app = Celery("refusals", task_cls=Again, set_as_current=False)

    with pytest.raises(DefinitionError, match="use @retry_on"):
        CeleryEngine(app).register(Stamp)


@pytest.mark.parametrize(
    ("new_engine", "option", "words"),
    [
        (new_celery, "max_retries", "takes no 'max_retries': use @retry_on"),
        (new_celery, "autoretry_for", "use @retry_on"),
        (new_celery, "bind", "the engine needs it"),
        (new_celery, "name", "that of the task"),
        (new_dramatiq, "max_retries", "takes no 'max_retries': use @retry_on"),
        (new_dramatiq, "retry_when", "use @retry_on with if_="),
        (new_dramatiq, "actor_name", "that of the task"),
        (new_dramatiq, "store_results", "middleware Results"),
        (new_dramatiq, "on_success", "use the callback @on_success of the task"),
        (new_dramatiq, "on_failure", "use the callback @on_failed of the task"),
        (new_dramatiq, "on_retry_exhausted", "use the callback @on_failed"),
        (new_dramatiq, "pipe_target", "write a Workflow"),
    ],
)
def test_options_that_would_contradict_the_task_are_refused(new_engine, option, words):
    with pytest.raises(DefinitionError, match=words):
        new_engine().register(Halts, **{option: 1})


@pytest.mark.parametrize("new_engine", [CeleryEngine, DramatiqEngine])
def test_a_wrong_pause_is_refused(new_engine):
    with pytest.raises(DefinitionError, match="longest_pause must be a finite number"):
        new_engine(None, longest_pause=-1)


@pytest.mark.parametrize("new_engine", [CeleryEngine, DramatiqEngine])
def test_what_is_no_app_or_broker_is_refused(new_engine):
    with pytest.raises(TypeError, match=r"takes .* such as .*, got 'redis://'"):
        new_engine("redis://")


@pytest.mark.filterwarnings("ignore::celery.exceptions.DuplicateTaskNameWarning")
def test_a_name_that_another_task_of_the_app_has_is_refused():
    app = Celery("refusals", broker="memory://", set_as_current=False)

    @app.task(name="engine_tasks:Stamp", shared=False)
    def other(): ...

    engine = CeleryEngine(app)
    engine.register(Stamp)

    with pytest.raises(DefinitionError, match="another task with the name"):
        engine.enqueue(Stamp())


def test_messages_are_confirmed_whatever_is_configured_later():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    app.conf.task_ignore_result = True
    engine = CeleryEngine(app)
    engine.register(Stamp)
    app.conf.broker_transport_options = {"visibility_timeout": 7}

    engine.enqueue(Stamp())

    options = app.conf.broker_transport_options
    assert options == {"visibility_timeout": 7, "confirm_publish": True}


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), float("inf"), -1])
def test_a_wrong_timeout_is_refused(engine, timeout):
    handle = engine.enqueue(Stamp())

    with pytest.raises(DefinitionError, match="timeout must be a finite number"):
        handle.wait(timeout)


def test_a_time_that_is_too_far_away_is_taken_as_some_decades():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    app.conf.task_default_queue = "far_away"
    engine = CeleryEngine(app)
    engine.register(Stamp)

    engine.enqueue(Stamp(), at=datetime.max.replace(tzinfo=UTC))

    with app.connection_for_read() as connection:
        message = connection.default_channel.basic_get("far_away", no_ack=True)
    eta = datetime.fromisoformat(message.headers["eta"])
    assert 30 < (eta - datetime.now(UTC)).days / 365 < 32


def test_what_is_declared_cannot_be_called(engine):
    name = "engine_tasks:Stamp"
    is_celery = isinstance(engine, CeleryEngine)
    declared = engine.app.tasks[name] if is_celery else engine.broker.get_actor(name)

    with pytest.raises(TypeError, match=r"Run it here by Stamp.execute\(...\)"):
        declared()


@pytest.mark.parametrize("data", [TAGGED, {"deep": [1, TAGGED]}])
def test_data_that_celery_would_read_as_its_own_is_refused(data):
    engine = new_celery()
    engine.register(Echo)

    with pytest.raises(WireError, match="the input 'data' contains the keys"):
        engine.enqueue(Echo(data=data))


# -- results --------------------------------------------------------------------------


def test_waiting_needs_a_result_backend():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    celery, dramatiq = CeleryEngine(app), new_dramatiq()
    for engine in (celery, dramatiq):
        engine.register(Stamp)

    with pytest.raises(CmdxError, match=r"Celery\(..., backend=...\)"):
        celery.enqueue(Stamp()).wait(1)
    with pytest.raises(CmdxError, match="add_middleware"):
        dramatiq.enqueue(Stamp()).wait(1)


def test_a_task_that_stores_no_results_cannot_be_waited_for():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    app.conf.result_backend = "cache+memory://"
    engine = CeleryEngine(app)
    engine.register(Stamp, ignore_result=True)

    with pytest.raises(CmdxError, match="Leave out ignore_result=True"):
        engine.enqueue(Stamp()).wait(1)


def test_a_handle_shows_its_id(engine):
    handle = engine.enqueue(Stamp())

    assert repr(handle) == f"<Handle {handle.id}>"


def test_a_failure_shows_its_reason_alone_and_can_be_sent_to_another_process():
    failure = TaskFailed("card declined", {"a": "result"})

    copy = pickle.loads(pickle.dumps(failure))

    assert (str(failure), repr(failure)) == (
        "card declined",
        "TaskFailed('card declined')",
    )
    assert (copy.reason, copy.result) == ("card declined", {"a": "result"})
    assert failure.args[0] == "card declined"


# -- Celery that runs tasks at once ---------------------------------------------------


@pytest.fixture
def eager():
    engine = new_celery()
    engine.register(Steady, Halts, Around, AwaitedSteady, TimeLeft)
    return engine


class Around(Workflow[None]):
    """A task that may be enqueued inside of another one."""

    steps = (Stamp,)


class TimeLeft(Task[float | None]):
    """Returns how much time there is."""

    def work(self):
        return cmdx.remaining()


@pytest.mark.usefixtures("instant")
def test_an_eager_app_sleeps_the_pauses_and_has_the_result(eager):
    handle = eager.enqueue(Steady(name="n", script=["connection"] * 2))

    assert handle.wait().retries == 2


def test_an_eager_app_has_the_failed_result(eager):
    result = eager.enqueue(Halts(**GOOD)).wait()

    assert (result.failed, result.reason) == (True, "card declined")


def test_an_eager_task_inside_of_another_one_begins_a_chain_of_its_own(eager):
    class Enqueue(Task[str]):
        def work(self):
            return eager.enqueue(Around()).wait().cid

    result = Enqueue.execute_or_raise()

    assert len(result.chain) == 1
    assert result.value != result.cid


def test_an_eager_task_has_no_deadline_of_who_enqueues_it(eager):
    with cmdx.deadline(5):
        assert eager.enqueue(TimeLeft()).wait().value is None
        assert cmdx.remaining() > 0


def test_an_eager_task_that_awaits_runs_where_there_is_no_event_loop(eager):
    result = eager.enqueue(AwaitedSteady(**GOOD)).wait()

    assert result.value == "n was awaited"


def test_an_eager_task_that_awaits_says_why_it_cannot_run_in_an_event_loop(eager):
    async def enqueue():
        return eager.enqueue(AwaitedSteady(**GOOD))

    handle = asyncio.run(enqueue())

    with pytest.raises(TaskFailed, match=r"Call it by asyncio.to_thread"):
        handle.wait()


# -- priorities -----------------------------------------------------------------------


def test_a_broker_without_priorities_refuses_them():
    engine = new_dramatiq()
    engine.register(Stamp)

    with pytest.raises(DefinitionError, match="this broker has no priorities"):
        engine.enqueue(Stamp(), priority=1)


def test_a_priority_that_the_broker_does_not_have_is_refused():
    engine = new_dramatiq()
    engine.broker.max_priority = 5
    engine.register(Stamp)

    with pytest.raises(DefinitionError, match="is 0 to 5, got 6"):
        engine.enqueue(Stamp(), priority=6)


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_that_celery_does_not_have_is_refused(priority):
    engine = new_celery()
    engine.register(Stamp)

    with pytest.raises(DefinitionError, match="a priority on Celery is 0 to 9"):
        engine.enqueue(Stamp(), priority=priority)


def test_a_queue_of_celery_without_priorities_refuses_them():
    app = Celery("refusals", broker="pyamqp://", set_as_current=False)
    engine = CeleryEngine(app)
    engine.register(Stamp)

    with pytest.raises(DefinitionError, match="task_queue_max_priority = 9"):
        engine.enqueue(Stamp(), priority=1)


# -- PROPOSED -------------------------------------------------------------------------


def new_app(**settings):
    """Return an app whose broker cannot be reached, which it notices at once."""
    app = Celery("refusals", broker="pyamqp://127.0.0.1:1", set_as_current=False)
    at_once = {"max_retries": 1, "interval_start": 0}
    app.conf.update(task_publish_retry=False, broker_transport_options=at_once)
    app.conf.update(settings)
    return app


def run_as_worker(app, task, request=None, **inputs):
    """Run a task of an app, as a worker does that has received a message."""
    celery_task = app.tasks[f"engine_tasks:{task.__name__}"]
    celery_task.push_request(called_directly=False, **(request or {"id": "7"}))
    try:
        return celery_task.run(**inputs)
    finally:
        celery_task.pop_request()


@pytest.mark.parametrize("is_configured", [False, True])
def test_a_worker_that_sends_nothing_itself_confirms_messages_too(is_configured):
    app = Celery("refusals", broker="memory://", set_as_current=False)
    if is_configured:
        assert app.conf.broker_url == "memory://"  # to read it is to configure it

    CeleryEngine(app)

    assert app.conf.broker_transport_options == {"confirm_publish": True}


def test_messages_are_confirmed_if_an_app_is_configured_anew():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    engine = CeleryEngine(app)
    engine.register(Stamp)
    assert app.conf.broker_transport_options == {"confirm_publish": True}
    app.conf.broker_transport_options = {"visibility_timeout": 7}

    engine.enqueue(Stamp())

    assert app.conf.broker_transport_options["confirm_publish"]


def test_who_wants_no_confirmations_has_none():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    app.conf.broker_transport_options = {"confirm_publish": False}

    CeleryEngine(app)

    assert app.conf.broker_transport_options == {"confirm_publish": False}


@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")
def test_a_priority_is_that_of_the_queue_of_the_task():
    queues = [Queue("celery", max_priority=9), Queue("plain")]
    engine = CeleryEngine(new_app(task_queues=queues))
    engine.register(Stamp, queue="plain")

    with pytest.raises(DefinitionError, match="the queue 'plain' has no priorities"):
        engine.enqueue(Stamp(), priority=1)


@pytest.mark.parametrize("options", [{}, {"ignore_result": True}])
def test_a_result_that_nobody_stores_is_not_written(options):
    backend = "cache+memory://" if options else None
    app = Celery("refusals", broker="memory://", backend=backend, set_as_current=False)
    CeleryEngine(app).register(Stamp, **options)

    assert run_as_worker(app, Stamp) is None


def test_a_pause_that_cannot_be_handed_over_has_its_message_delivered_again():
    app = new_app()
    CeleryEngine(app).register(Steady)

    with pytest.raises(Reject) as caught:
        run_as_worker(app, Steady, name="n", script=["connection"])

    assert caught.value.requeue


def test_a_quorum_queue_that_counts_in_seconds_gets_a_whole_one():
    quorum = {"x-queue-type": "quorum"}
    queue = Queue(
        "celery", Exchange("celery", "topic"), "celery", queue_arguments=quorum
    )
    engine = CeleryEngine(new_app(task_queues=[queue]))
    engine.register(Stamp)
    keys = []

    def note(routing_key, **_):
        keys.append(routing_key)

    before_task_publish.connect(note)
    with pytest.raises(OperationalError):  # nobody is there
        engine.enqueue(Stamp(), after=0.3)

    assert [key.rpartition(".0.")[2] for key in keys] == ["1.celery"]


OF_CELERY = """
name bind autoretry_for dont_autoretry_for retry_kwargs retry_backoff retry_backoff_max
retry_jitter max_retries default_retry_delay
"""
OF_DRAMATIQ = """
actor_name broker max_retries min_backoff max_backoff retry_when store_results
"""


@pytest.mark.parametrize(
    ("new_engine", "options"), [(new_celery, OF_CELERY), (new_dramatiq, OF_DRAMATIQ)]
)
def test_all_options_that_would_contradict_the_task_are_refused(new_engine, options):
    for option in options.split():
        with pytest.raises(DefinitionError, match=f"takes no '{option}'"):
            new_engine().register(Halts, **{option: 1})


def test_the_default_borders_are_those_of_the_reference():
    assert (new_celery().longest_pause, new_dramatiq().longest_pause) == (0.05, 1.0)


def test_options_that_the_engine_sets_can_be_changed():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    CeleryEngine(app).register(Stamp, acks_late=False)

    assert app.tasks["engine_tasks:Stamp"].acks_late is False


def test_a_broker_on_rabbitmq_confirms_messages():
    broker = RabbitmqBroker(url="amqp://127.0.0.1:1")  # it connects later

    DramatiqEngine(broker)

    assert broker.confirm_delivery


def test_a_broker_without_retries_is_enough():
    engine = DramatiqEngine(StubBroker(middleware=[]))

    engine.register(Stamp)


def test_a_failure_in_a_worker_has_its_reason_and_its_cause():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    CeleryEngine(app).register(Steady)

    with pytest.raises(TaskFailed) as caught:
        run_as_worker(app, Steady, name="n", script=["key"])

    assert str(caught.value) == "[KeyError] 'price'"
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_message_has_the_trace_of_who_has_sent_it():
    message = EngineMessage("7", "celery", {}, origin={"traceparent": "00-1-2-01"})

    assert message.traceparent == "00-1-2-01"


def test_what_is_due_is_counted_by_the_clock_of_who_enqueues(instant):
    sent = []
    engine = new_dramatiq()
    engine.register(Stamp)
    instant.sleep(3600)
    at = datetime.fromtimestamp(instant.time() + 60, UTC)
    engine.broker.enqueue = lambda _message, delay: sent.append(delay)

    engine.enqueue(Stamp(), at=at)

    assert sent == [60_000]


def test_the_message_that_goes_on_takes_the_way_of_the_one_before():
    app = Celery("refusals", broker="memory://", set_as_current=False)
    CeleryEngine(app).register(Steady)
    origin = {"xid": "order-3"}
    way = {"exchange": "", "routing_key": "payments", "priority": 5}
    request = {"id": "7", "headers": {"cmdx": origin}, "delivery_info": way}

    with pytest.raises(Ignore):
        run_as_worker(app, Steady, request, name="n", script=["connection"])

    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("payments").get(block=False)
    assert (message.headers["id"], message.headers["cmdx"]) == ("7", origin)
    assert message.properties["priority"] == 5


def test_a_delay_is_not_rounded_down():
    engine, sent = new_dramatiq(), []
    engine.register(Stamp)
    engine.broker.enqueue = lambda _message, delay: sent.append(delay)

    engine.enqueue(Stamp(), after=0.0125)

    assert sent == [13]


def test_a_broker_that_has_the_current_message_gets_no_second_one():
    broker = StubBroker(middleware=[CurrentMessage()])

    DramatiqEngine(broker)

    assert sum(isinstance(one, CurrentMessage) for one in broker.middleware) == 1


def test_whoever_waits_for_a_failed_result_gets_its_fault(eager):
    result = eager.enqueue(Steady(name="n", script=["key"])).wait()

    with pytest.raises(Steady.Fault, match="price"):
        result.or_raise()


def test_nothing_to_register_is_refused(engine):
    with pytest.raises(TypeError, match="such as ChargeCard, got none"):
        engine.register()


@pytest.mark.parametrize(
    ("name", "place"),
    [("CeleryEngine", "celery"), ("DramatiqEngine", "dramatiq")],
)
def test_an_engine_that_is_looked_for_in_the_package_is_told_where_it_is(name, place):
    with pytest.raises(ImportError, match=f"from cmdx.engines.{place} import {name}"):
        getattr(cmdx.engines, name)


def test_another_name_of_the_package_is_an_attribute_error():
    assert not hasattr(cmdx.engines, "KafkaEngine")
