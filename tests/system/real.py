"""Group real: servers, interpreters, shells, compilers and MPI, as issue 2 lists them. Each is recorded with --bound 2s and re-driven
whole, with every interval within the bound, after its directory is gone and its ports are taken."""
import contextlib
import os
import subprocess
import sys

import mpi
from harness import TESTS, Failure, go_compiled, needs, test, workload
from redriving import (BOUND_S, Job, copy_into, cycle, free_port, images_by_unit, is_root, record, redrive_all, run_natively,
                       take_away_surroundings, units)

WORKLOADS = TESTS / "workloads"
PYTHON = "/usr/bin/python3"  # a binary; what PATH says may be a script that looks for one


def script(text, files=None):
    """A Job's prepare: writes `run.sh` and other files into the working directory."""
    def prepare(work):
        for name, content in {"run.sh": text, **(files or {})}.items():
            (work / name).write_text(content)
    return prepare


def shell_job(text, files=None, **changes):
    return Job(["sh", "run.sh"], prepare=script("set -eu\n" + text, files), **changes)


def redis_script(port, requests, clients=20):
    return f"""
redis-server --port {port} --bind 127.0.0.1 --dir . --save '' --appendonly no --daemonize no > server.log &
server=$!
until redis-cli -p {port} ping > ping.out 2>&1 && grep -q PONG ping.out; do sleep 0.05; done
redis-benchmark -p {port} -c {clients} -n {requests} -t get,set -q > benchmark.out
redis-cli -p {port} set key value > /dev/null
test "$(redis-cli -p {port} get key)" = value
redis-cli -p {port} shutdown nosave || true
wait $server
grep -q 'GET: .* requests per second' benchmark.out
echo ok
"""


@test("real/redis", timeout_s=600, slow=True)
def redis(ctx):
    needs("redis-server", "redis-benchmark", "redis-cli")
    port = free_port()
    cycle(ctx, shell_job(redis_script(port, 50000), ports=(port,)), bound_s=BOUND_S)


NGINX_CONF = """
{user}daemon off; worker_processes 2; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 256; }}
http {{
  access_log access.log;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{ listen 127.0.0.1:{port}; location / {{ root html; }} }}
}}
"""


NGINX_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def nginx_files(port):
    return {"nginx.conf": NGINX_CONF.format(port=port, user="user root;\n" if is_root() else "")}


def nginx_script(port, requests):
    return f"""
mkdir html && echo 'hello from nginx' > html/index.html
nginx -p "$PWD" -c nginx.conf -e error.log &
server=$!
until [ -s nginx.pid ]; do sleep 0.05; done
ab -q -n {requests} -c 8 http://127.0.0.1:{port}/index.html > ab.out
grep -q 'Complete requests: *{requests}' ab.out
grep -q 'Failed requests: *0' ab.out
kill -QUIT $server
wait $server
test "$(wc -l < access.log)" -eq {requests}
echo ok
"""


@test("real/nginx", timeout_s=600, slow=True)
def nginx(ctx):
    needs("nginx", "ab")
    port = free_port()
    cycle(ctx, shell_job(nginx_script(port, 2000), files=nginx_files(port), env=NGINX_ENV, ports=(port,)), bound_s=BOUND_S)


@test("real/memcached", timeout_s=600, slow=True)
def memcached(ctx):
    needs("memcached")
    port = free_port()
    cycle(ctx, shell_job(f"""
memcached -u "$(id -un)" -l 127.0.0.1 -p {port} -U 0 -t 4 &
server=$!
{PYTHON} {WORKLOADS}/memcached_client.py {port} 500
kill -TERM $server
wait $server || true
echo ok
""", ports=(port,)), bound_s=BOUND_S)


POSTGRES_SCRIPT = """
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
"$bin/initdb" -D data -A trust -U tester > initdb.out
"$bin/pg_ctl" -D data -w -o "-c listen_addresses='' -k $PWD -c autovacuum_naptime=1" -l log start > start.out
ask() { psql -h "$PWD" -U tester -d postgres -At -c "$1"; }
ask "create table t(i int primary key, s text); insert into t select g, md5(g::text) from generate_series(1, 3000) g" > create.out
ask "update t set s = upper(s) where i % 3 = 0" > update.out &
ask "select count(*) from t, t u where t.i = u.i + 1" > join.out
wait $!
test "$(cat join.out)" = 2999
test "$(ask "select count(*) from t where s = upper(md5(i::text)) and i % 3 = 0")" = 1000
"$bin/pg_ctl" -D data -w stop > stop.out
echo ok
"""


@test("real/postgres", timeout_s=600)
def postgres(ctx):
    """A server that shares memory, semaphores and signals with one process for each client, and will not run as root."""
    needs("psql", "setpriv")

    def prepare(work):
        script("set -eu\n" + POSTGRES_SCRIPT)(work)
        if is_root():
            work.parent.chmod(0o711)
            work.chmod(0o777)

    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if is_root() else []
    cycle(ctx, Job([*as_nobody, "sh", "run.sh"], prepare=prepare), bound_s=BOUND_S)


def register_python():
    for name in ("pool", "pipes", "server_threads", "server_asyncio", "subprocesses"):
        source = WORKLOADS / f"{name}.py"

        def run(ctx, source=source):
            needs(PYTHON)
            cycle(ctx, Job([PYTHON, source.name], prepare=copy_into(source)), bound_s=BOUND_S)
        test(f"real/python_{name}", timeout_s=300, slow=name == "server_asyncio")(run)


register_python()


@test("real/producer_consumer", timeout_s=300)
def producer_consumer(ctx):
    binary = workload(ctx.options, "producer_consumer")
    cycle(ctx, Job(["./producer_consumer", "3000", "300"], prepare=copy_into(binary)), bound_s=BOUND_S)


@test("real/mesh", timeout_s=300, slow=True)
def mesh(ctx):
    cycle(ctx, Job(["./mesh", "4", "800i"], prepare=copy_into(workload(ctx.options, "mesh"))), bound_s=BOUND_S)


def register_goroutines():
    for tier in ("in-process", "stops"):
        @test(f"real/go_{tier}", timeout_s=300)
        def go(ctx, tier=tier):
            needs("go")
            binary = go_compiled(ctx.options, WORKLOADS / "goroutines.go")
            interception = ("--interception", tier)
            cycle(ctx, Job(["./goroutines", "100"], prepare=copy_into(binary), record_options=("--bound", "2s", *interception),
                           replay_options=interception), bound_s=BOUND_S)


register_goroutines()


@test("real/node", timeout_s=600, slow=True)
def node(ctx):
    needs("node")
    cycle(ctx, Job(["node", "short_job.js", "100"], prepare=copy_into(WORKLOADS / "short_job.js")), bound_s=BOUND_S)


def made_class(work):
    subprocess.run(["javac", "-d", work, WORKLOADS / "ShortJob.java"], check=True)


@contextlib.contextmanager
def on_one_processor():
    """What this thread starts runs on one processor, and so gets the same answers from a cpuid that cannot be trapped."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@test("real/java", timeout_s=600, slow=True)
def java(ctx):
    needs("java", "javac")
    with on_one_processor():  # code that Java writes when it starts asks for the processor's number (README.md, "Limits")
        cycle(ctx, Job(["java", "-cp", ".", "ShortJob", "50"], prepare=made_class), bound_s=BOUND_S)


@test("real/pipeline", timeout_s=300)
def pipeline(ctx):
    cycle(ctx, Job(["./pipeline.sh", "100000"], prepare=copy_into(WORKLOADS / "pipeline.sh")), bound_s=BOUND_S)


def made_project(work):
    subprocess.run([sys.executable, WORKLOADS / "make_project.py", work / "project", "12"], check=True)
    (work / "run.sh").write_text("make -s -C project -j2 CC=gcc && cat project/result\n")


@test("real/make", timeout_s=600, slow=True)
def make(ctx):
    needs("make", "gcc")
    cycle(ctx, Job(["sh", "run.sh"], prepare=made_project), bound_s=BOUND_S)


def made_repository(work):
    source = work / "source"
    source.mkdir()
    git = ["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    for version in range(10):
        for number in range(20):
            (source / f"file{number}").write_text(f"{version} {number}\n" * (100 + number))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"version {version}"], check=True)
    script("set -eu\ngit clone -q --no-local source copy\ngit -C copy fsck\n"
           'test "$(git -C copy rev-list --count HEAD)" -eq 10\necho ok\n')(work)


@test("real/git_clone", timeout_s=300)
def git_clone(ctx):
    needs("git")
    cycle(ctx, Job(["sh", "run.sh"], prepare=made_repository), bound_s=BOUND_S)


def expect_images(ctx, program, at_least):
    """For every unit that ran the program."""
    images = images_by_unit(ctx)
    ranks = {u["name"]: len(images[u["unit"]]) for u in units(ctx) if u["name"].split(".")[0] == program}
    if len(ranks) != mpi.RANKS or min(ranks.values()) < at_least:
        raise Failure(f"image checkpoints by rank: {ranks}; {at_least} in each of {mpi.RANKS} expected")


@test("real/mpi_ring", timeout_s=300)
def mpi_ring(ctx):
    cycle(ctx, mpi.job(ctx.options, "ring", 300, 50), bound_s=BOUND_S)


@test("real/mpi_fft", timeout_s=300, slow=True)
def mpi_fft(ctx):
    cycle(ctx, mpi.job(ctx.options, "fft", 256, 20), bound_s=BOUND_S)


MANY_IMAGES = ("--bound", "2s", "--checkpoint-period", "100ms")


@test("real/mpi_jacobi", timeout_s=1200, slow=True)
def mpi_jacobi(ctx):
    checked = run_natively(ctx, mpi.job(ctx.options, "jacobi", 1000, 4000))
    recorded = record(ctx, mpi.job(ctx.options, "jacobi", 1000, 4000, "nocheck", record_options=MANY_IMAGES))
    same = mpi.value_of("checksum", recorded) == mpi.value_of("checksum", checked)
    ctx.expect(same, recorded, "another checksum than natively")
    take_away_surroundings(ctx)
    expect_images(ctx, "jacobi", 8)
    redrive_all(ctx, bound_s=BOUND_S)


@test("real/mpi_master_worker", timeout_s=1200, slow=True)
def mpi_master_worker(ctx):
    job = mpi.job(ctx.options, "master_worker", 4000, 3000, record_options=MANY_IMAGES)
    natively = run_natively(ctx, job)
    recorded = record(ctx, job)
    ctx.expect(mpi.value_of("sum", recorded) == mpi.value_of("sum", natively), recorded, "another sum than natively")
    take_away_surroundings(ctx)
    expect_images(ctx, "master_worker", 8)
    redrive_all(ctx, bound_s=BOUND_S)
    expect_same_digest(ctx, recorded)


def expect_same_digest(ctx, recorded):
    """Whatever order of arrivals the recording had, every replay of the end of rank 0 gives the same digest."""
    digest = mpi.value_of("digest", recorded)
    ranks = [u for u in units(ctx) if u["name"].split(".")[0] == "master_worker"]
    for _ in range(2):
        outputs = [ctx.expect_status(ctx.redrive("replay", ctx.trace, f"{u['unit']}:{u['intervals'][-1]['interval']}",
                                                 "--output"), 0) for u in ranks]
        found = {mpi.value_of("digest", outcome) for outcome in outputs} - {None}
        ctx.expect(found == {digest}, outputs[0], f"recorded digest {digest}, re-driven {found}")
