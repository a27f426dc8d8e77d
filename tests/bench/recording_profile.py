"""What the time of a recording goes into: samples of perf(1) over the supervisor and all that it records, in a dozen groups.

A sample of the supervisor belongs to the file of the function that it is in; one in the kernel to the call, or the page fault, that led
there, as the kernel's part of the stack tells."""
import collections
import pathlib
import re
import subprocess

GROUPS = ["program", "kernel", "gate", "seccomp", "stops", "memory", "patching", "events", "channels", "log", "catalog", "images",
          "heap", "other"]

# Of the recorded programs' samples in the kernel, the first that fits any function of the stack.
PROGRAM_KERNEL = [("stops", r"ptrace|do_notify|signal_deliver|get_signal"),
                  ("seccomp", r"seccomp|secure_computing|syscall_trace_enter")]
# Of the supervisor's in the kernel and in libraries. "memory" is reading and writing tracees', and looking at their maps; "heap"
# allocation, copying and clearing, which nothing in the stack tells the caller of.
SUPERVISOR_OUTSIDE = [("memory", r"process_vm|access_process_vm|access_remote|mem_rw|p(read|write)64|show_map|seq_read|proc_"),
                      ("stops", r"ptrace|wait4|do_wait|waitid|tgkill|futex|sched_setaffinity"),
                      ("channels", r"pidfd|netlink|sock_diag|unix_diag|readlink|statx|fstat"),
                      ("log", r"vfs_write|ksys_write|fsync|fdatasync|rename|openat|unlinkat|fsverity"),
                      ("images", r"clone|copy_process|copy_mm|exit_mm"),
                      ("heap", r"malloc|calloc|\bc?free|_int_|unlink_chunk|^operator (new|delete)|mem(cpy|move|set|cmp)|madvise|brk")]
LIBRARIES = [("log", "zstd|xxhash"), ("patching", "capstone"), ("catalog", "sqlite")]
# Functions of redrive, by name; the others by the object file that defines them.
FUNCTIONS = [("catalog", r"^redrive::(decode|Decoder|EventSegment|Trace::|build_catalog)"), ("memory", r"^redrive::(Remote|read_memory|write_memory)"),
             ("patching", r"cpuid")]
OBJECTS = [("patching", r"interceptors/(patch_window|cpuid_sites|gate_calls)|supervisor/(tier/(gate|trampoline|code_segments)|record/code/recorded_gate|record/code/patch_plans)"),
           ("channels", r"channels|socket|payload|endpoint|record/messages/|policy"),
           ("images", r"checkpoint/|image|recorder_checkpoints|page_store|file_store"),
           ("catalog", r"logstore/(catalog|database|trace\.o|trace_state)"), ("log", r"logstore/"), ("memory", r"base/remote"),
           ("events", r"interceptors/|supervisor/")]


def command(data):
    """What to put in front of a command to sample it and its children into the file."""
    return ["perf", "record", "-q", "-F", "499", "-e", "cpu-clock", "-g", "-o", data, "--"]


def first(rules, *texts):
    for group, pattern in rules:
        if any(re.search(pattern, text) for text in texts):
            return group
    return None


def without_parameters(function):
    """The name as perf prints it."""
    function = function.replace("(anonymous namespace)", "{anonymous}")
    return re.split(r"\(|\[", function, maxsplit=1)[0].replace("{anonymous}", "(anonymous namespace)").strip()


def objects_of(build):
    """Function of redrive -> the one object file that defines it."""
    found = collections.defaultdict(set)
    files = [file for file in pathlib.Path(build).glob("*/**/*.o") if "tests" not in file.relative_to(build).parts]
    names = subprocess.run(["nm", "-AC", "--defined-only", *map(str, files)], capture_output=True, text=True, check=True).stdout
    for line in names.splitlines():
        match = re.match(rf"{re.escape(str(build))}/([^:]+):[0-9a-f]* [tTwW] (.*)", line)
        if match:
            found[without_parameters(match[2])].add(match[1])
    return {name: next(iter(files)) for name, files in found.items() if len(files) == 1}


def group_of_function(function, objects):
    return first(FUNCTIONS, function) or first(OBJECTS, objects.get(function, "")) or "other"


def group_of(program, stack, objects):
    """The stack: pairs of function and file, innermost first."""
    in_kernel = [function for function, file in stack if "kernel" in file]
    function, file = stack[0]
    if program != "redrive":
        if "memfd:redrive" in file:
            return "gate"
        return (first(PROGRAM_KERNEL, *in_kernel) or "kernel") if in_kernel else "program"
    if file.endswith("/redrive"):
        return group_of_function(function, objects)
    outside = [function for function, file in stack if not file.endswith("/redrive")]
    if group := first(LIBRARIES, file) or first(SUPERVISOR_OUTSIDE, *outside):
        return group
    user = [function for function, file in stack if file.endswith("/redrive")]
    return group_of_function(user[0], objects) if user and "asm_exc_page_fault" in in_kernel else "other"


def samples(data):
    """(name of the program, stack) of each."""
    text = subprocess.run(["perf", "script", "-i", str(data), "-F", "comm,ip,sym,dso"], capture_output=True, text=True, check=True).stdout
    for block in text.split("\n\n"):
        lines = block.strip("\n").splitlines()
        stack = [match.groups() for line in lines[1:] if (match := re.match(r"\s*[0-9a-f]+ (.*) \(([^()]*(?:\(deleted\))?)\)$", line))]
        if stack:
            yield lines[0].strip(), [(without_parameters(function), file.replace(" (deleted)", "")) for function, file in stack]


def shares(data, build):
    """Group -> percent of all samples."""
    objects = objects_of(build)
    counts = collections.Counter(group_of(program, stack, objects) for program, stack in samples(data))
    total = sum(counts.values())
    return {group: 100 * counts[group] / total for group in GROUPS}
