"""Group confined: files that a trace names as programs and libraries are read by a process that can do nothing else. So files that are made to
mislead their readers cost a report its stack, and nothing else."""
import struct

from breakpoints import inspected
from faults import alter
from harness import Failure, test, workload
from redriving import Job, record, run_natively, take_away_surroundings, units


def recorded(ctx, way, program=None):
    """A recording of the program, stopped in getppid(2) in that way; returns the event."""
    job = Job([program or workload(ctx.options, "misleading_frames"), way])
    run_natively(ctx, job)
    record(ctx, job)
    take_away_surroundings(ctx)
    unit = units(ctx)[0]["unit"]
    events = ctx.json("dump", ctx.trace, str(unit))
    return f"{unit}@{[event['event'] for event in events if event['text'].startswith('getppid')][-1]}"


def stack_at(ctx, place):
    return inspected(ctx, place, f"stack {place.split('@')[0]}\ncontinue\n").stdout


@test("confined/endless_unwinding")
def endless_unwinding(ctx):
    """The search for a frame ends at its limit, at a breakpoint and in the report of a divergence, which is otherwise unchanged."""
    place = recorded(ctx, "endless")
    line = "no stack: it took more than 2 s\n"
    if line not in stack_at(ctx, place):
        raise Failure("a breakpoint does not say why there is no stack")
    report = ctx.json("replay", ctx.trace, "--break", place)
    if [thread["stack"] for unit in report["units"] for thread in unit["threads"]] != [[line.strip()]]:
        raise Failure(f"a breakpoint's report: {report}")


@test("confined/bad_frames")
def bad_frames(ctx):
    """The stack ends at frames that cannot be found."""
    for way in ("deep", "far"):
        ctx.trace = ctx.traces / way
        shown = stack_at(ctx, recorded(ctx, way))
        if "#0 0x" not in shown or f"{way}+0x" not in shown:
            raise Failure(f"{way}: {shown}")


def section_headers(image):
    """(offset of the header, type, offset, size, link, size of an entry) of an ELF file's sections."""
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    for at in range(start, start + size * count, size):
        kind = struct.unpack_from("<I", image, at + 4)[0]
        offset, length, link = struct.unpack_from("<QQI", image, at + 24)
        yield at, kind, offset, length, link, struct.unpack_from("<Q", image, at + 56)[0]


def forge(ctx, name, change):
    """A copy of the program whose symbol tables are changed by `change(image, header)`; it runs as before."""
    image = bytearray(workload(ctx.options, "misleading_frames").read_bytes())
    symbol_table = 2
    for header in section_headers(image):
        if header[1] == symbol_table:
            change(image, header)
    forged = ctx.directory / name
    forged.write_bytes(image)
    forged.chmod(0o755)
    return forged


def names_beyond_the_file(image, header):
    _, _, offset, length, _, entry = header
    for at in range(offset, offset + length, entry):
        struct.pack_into("<I", image, at, 0xfffffff0)


def names_that_move_the_cursor(image, header):
    names = list(section_headers(image))[header[4]]
    for at in range(names[2], names[2] + names[3]):
        if image[at]:
            image[at] = 0x1b


def endless_table(image, header):
    struct.pack_into("<QQ", image, header[0] + 24, header[2], 1 << 62)


def no_such_names(image, header):
    struct.pack_into("<I", image, header[0] + 40, 0xffffffff)


def far_table(image, header):
    struct.pack_into("<Q", image, header[0] + 24, (1 << 64) - 64)


@test("confined/forged_symbols")
def forged_symbols(ctx):
    """Symbols that point out of the file, or that have no printable name, are ignored, and the stack is shown."""
    for change in (names_beyond_the_file, names_that_move_the_cursor, endless_table, no_such_names, far_table):
        ctx.trace = ctx.traces / change.__name__
        shown = stack_at(ctx, recorded(ctx, "far", forge(ctx, change.__name__, change)))
        if "#0 0x" not in shown:
            raise Failure(f"{change.__name__}: {shown}")
        if "\x1b" in shown:
            raise Failure(f"{change.__name__}: control characters are shown")


@test("confined/divergence_without_stack")
def divergence_without_stack(ctx):
    """If there is no stack to show, a divergence is reported as usual."""
    recorded(ctx, "endless")
    altered, _ = alter(ctx, "result")
    outcome = ctx.redrive("replay", altered, "1")
    ctx.expect_status(outcome, 3)
    for word in ("expected", "found", "no stack: it took more than 2 s", "code:"):
        ctx.expect(word in outcome.stderr, outcome, f"the report has no '{word}'")
