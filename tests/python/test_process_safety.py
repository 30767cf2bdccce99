"""Fork, the end of the process and Ctrl-C with work in flight, each in a process of its own.

Such a process must end as asked, say nothing on standard error, and never hang.
"""

from __future__ import annotations

import pytest

from execution_helpers import run_child

FORKED = """
def in_child(action):
    "Runs it in a fork; what goes wrong there is the child's status."
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(40)  # a child that hangs is ended
            action()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
def use_everything():
    assert graph.run({x: four}, double).tolist() == [0, 2, 4, 6]
    fresh = ts.Graph()
    p = fresh.placeholder((-1,))
    assert fresh.run({p: four}, p * 3.0 + float(os.getpid() % 1000 + 1)).shape == (4,)
    assert graph.run_async({x: four}, double).result(30).tolist() == [0, 2, 4, 6]
    assert graph.run_async({x: four}, double, queue=queue).result(30).tolist() == [0, 2, 4, 6]
    before = np.asarray(graph.variable_value(v))
    assert len(set(before.tolist())) == 1, before
    graph.run_async(operations=[step], queue=queue).result(30)
    assert (np.asarray(graph.variable_value(v)) == before + 1).all()
    assert queue.wait(30)
queue = ts.Queue()
graph.run({x: four}, double)
"""

LONG = """
big = ts.Graph()
w = big.variable(np.full((64, 64), 1.0, np.float32))
value = w
for _ in range(400):
    value = ts.tanh(value @ np.full((64, 64), 0.01, np.float32))
"""


def test_fork_with_idle_and_queued_work() -> None:
    run_child(
        FORKED
        + """
in_child(use_everything)
event, job = held(queue)
behind = graph.run_async({x: four}, double, queue=queue)
def lost():
    for lost_job in (job, behind):
        try:
            lost_job.result()
            raise AssertionError("a lost job gave a result")
        except ts.UserError as error:
            assert "forked" in str(error)
        assert not lost_job.done() and not lost_job.cancel()
    assert queue.pending == 0
    use_everything()
    pid = os.fork()  # a child of the child
    if pid == 0:
        use_everything()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
in_child(lost)
event.signal(1)
assert behind.result(30).tolist() == [0, 2, 4, 6]
"""
    )


def test_command_buffers_can_be_committed_in_the_child() -> None:
    run_child(
        FORKED
        + """
commands = ts.CommandBuffer(queue)
graph.encode(commands, {x: four}, double)
def commit():
    assert [r.tolist() for r in commands.commit().result(30)] == [[0, 2, 4, 6]]
in_child(commit)
"""
    )


def test_awaiting_a_lost_job_is_an_error() -> None:
    run_child(
        FORKED
        + """
event, job = held(queue)
def wait():
    async def main():
        return await asyncio.wait_for(job, 2)
    try:
        asyncio.run(main())
    except ts.UserError:
        return
in_child(wait)
"""
    )


def test_fork_while_threads_build_run_and_update() -> None:
    run_child(
        FORKED
        + """
stop = threading.Event()
failures = []
def busy(k):
    try:
        n = 0
        while not stop.is_set():
            n += 1
            graph.run({x: four}, double)
            graph.run({}, operations=[step])
            graph.run_async({x: np.ones(1000, np.float32)}, double, queue=queue).result()
            if n % 20 == k:
                other = ts.Graph()
                p = other.placeholder((k + 2,))
                other.run({p: np.ones(k + 2, np.float32)}, p * float(n) - float(k))
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=busy, args=(k,)) for k in range(3)]
for thread in threads: thread.start()
for _ in range(8): in_child(use_everything)
stop.set()
for thread in threads: thread.join()
assert not failures, failures
use_everything()
"""
    )


def test_fork_from_several_threads() -> None:
    run_child(
        FORKED
        + """
failures = []
def work():
    try:
        for _ in range(3):
            in_child(use_everything)
            graph.run({}, operations=[step])
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
assert graph.variable_value(v).tolist() == [9.0] * 4
"""
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path) -> None:
    script = tmp_path / "main_module.py"
    script.write_text("""
import multiprocessing, sys
import numpy as np, topstitch as ts
def work(k):
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    return graph.run_async({x: np.full(3, k, np.float32)}, x * 2.0).result(30).tolist()
if __name__ == "__main__":
    work(1)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.map(work, range(4)) == [[2.0 * k] * 3 for k in range(4)]
        pool.close()
        pool.join()
""")
    run = f"import subprocess, sys; raise SystemExit(subprocess.call([sys.executable, {str(script)!r}, {method!r}]))"
    run_child(run, prelude="")


@pytest.mark.parametrize(
    "end",
    ["", "os._exit(0)", "sys.exit()", "del queue, other, event; gc.collect()"],
    ids=["end", "_exit", "exit", "dropped"],
)
def test_the_process_ends_with_work_in_flight(end: str) -> None:
    run_child(
        LONG
        + """
queue, other = ts.Queue(), ts.Queue()
update = w.assign(value)
big.run({}, operations=[update])
running = [big.run_async({}, operations=[update], queue=queue) for _ in range(100)]
for _ in range(100): graph.run_async({x: four}, double, queue=queue).add_done_callback(print)
event, blocked = held(other)
blocked.add_done_callback(lambda job: None)
def forever():
    while True:
        graph.run({x: four}, double)
        graph.run({}, operations=[step])
def waits():
    blocked.result()
for target in (forever, forever, waits, lambda e=event: e.wait(5), other.wait):
    threading.Thread(target=target, daemon=True).start()
graph.run({x: four}, double)
"""
        + end
    )


DISTINCT = """
deep = ts.Graph()
p = deep.placeholder((64,))
chain = p
for k in range(3000): chain = ts.tanh(chain * (1.0 + k / 9999))
"""


def test_the_process_ends_while_it_compiles() -> None:
    for delay in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        run_child(f"{DISTINCT}\njob = deep.compile_async([p], chain, stitch=False)\ntime.sleep({delay})")


INTERRUPTED = (
    LONG
    + """
queue = ts.Queue()
graph.run({x: four}, double)
class Other(Exception):
    pass
def interrupt(action, expected=KeyboardInterrupt):
    "Sends a signal into the action, which must raise at once."
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        action()
        raise AssertionError("not interrupted")
    except expected:
        pass
    passed = time.monotonic() - started
    assert passed < 12, passed
    assert graph.run({x: four}, double).tolist() == [0, 2, 4, 6]
def repeats(action):
    "How often to do the action so that the signal comes long before the end, on a machine of any speed."
    action()
    started = time.monotonic()
    action()
    return int(3.0 / (time.monotonic() - started)) + 30
"""
)


def test_interrupting_waits() -> None:
    run_child(
        INTERRUPTED
        + """
event, job = held(queue)
for action in (job.result, job.wait, job.exception, lambda: job.wait(1e9), queue.wait, lambda: event.wait(1)):
    interrupt(action)
def handle(*_):
    raise Other
signal.signal(signal.SIGINT, handle)
interrupt(job.result, Other)
calls = []
signal.signal(signal.SIGINT, lambda *_: (calls.append(1), event.signal(1)))  # a handler that raises nothing
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
assert job.result(30) == [] and calls == [1]
"""
    )


def test_interrupting_a_run() -> None:
    """Of a long run, all variables are updated or none; the next run waits for it."""
    run_child(
        INTERRUPTED
        + """
long = ts.Graph()
a, b = (long.variable(np.ones((1000, 1000), np.float32)) for _ in range(2))
moved = a
for _ in range(repeats(lambda: long.run({}, ts.sum(a @ b)))): moved = ts.minimum(moved @ b, 1.0)
steps = [a.assign(moved + 1.0), b.assign(ts.minimum(moved, 1.0) * 2.0)]
interrupt(lambda: long.run({}, operations=steps))
first, second = float(long.variable_value(a)[0, 0]), float(long.variable_value(b)[0, 0])
assert (first, second) in ((1.0, 1.0), (2.0, 2.0)), (first, second)
"""
    )


SLOW = """
long = ts.Graph()
a = long.variable(np.ones((1200, 1200), np.float32))
slow = a
for _ in range(repeats(lambda: long.run({}, ts.sum(a @ a)))): slow = ts.minimum(slow @ slow, 1.0)
first = a.assign(slow)
read = ts.sum(a)
long.run({}, read)
long.compile([], None, [first])
job = long.run_async(operations=[first], queue=queue)
while job.status == "committed": time.sleep(0.001)
"""


@pytest.mark.parametrize("action", ["long.run({}, read)", "long.variable_value(a)"])
def test_interrupting_whoever_waits_for_a_variable(action: str) -> None:
    interrupted = INTERRUPTED.replace("passed < 12", "not job.wait(0.1)")
    run_child(f"{interrupted}{SLOW}\ninterrupt(lambda: [{action} for _ in range(10**6)])\nos._exit(0)")


@pytest.mark.parametrize(
    "action",
    [
        "deep.run({p: np.ones(64, np.float32)}, chain, stitch=False)",
        "deep.compile([p], chain, stitch=False)",
        "deep.encode(ts.CommandBuffer(), {p: np.ones(64, np.float32)}, chain, stitch=False)",
    ],
    ids=["run", "compile", "encode"],
)  # fmt: skip
def test_interrupting_a_compilation(action: str) -> None:
    interrupted = INTERRUPTED.replace("passed < 12", "ts.cache_statistics()['kernels']['compiled'] < 3000")
    run_child(f"{interrupted}{DISTINCT}\ninterrupt(lambda: {action})\nos._exit(0)")


def test_interrupting_a_profile() -> None:
    interrupted = INTERRUPTED.replace("passed < 12", "float(many.variable_value(n)) < runs")
    run_child(
        interrupted
        + """
many = ts.Graph()
n, m = many.variable(np.float32(0)), many.variable(np.ones((300, 300), np.float32))
executable = many.compile([], ts.sum(m @ m), [n.assign(n + 1.0)])
runs = repeats(executable.run)
interrupt(lambda: executable.profile(runs=runs))
os._exit(0)
"""
    )
