"""Group building: the Makefile."""
from harness import ROOT, test


@test("building/one_name")
def one_name(ctx):
    """Objects are named alike however their directory is named: the files that say which headers they depend on name them."""
    ctx.expect_status(ctx.run("make", "-n", f"BUILD={ROOT}/build/other", "build/other/redrive", cwd=ROOT), 0)
