"""What the scripts of this directory have in common: which redrive, which build, short runs, where results go."""
import argparse
import os
import pathlib

from harness import ROOT


def parser(description, quick):
    build = pathlib.Path(os.environ.get("REDRIVE_BUILD", ROOT / "build")).resolve()
    made = argparse.ArgumentParser(description=description.split("\n")[0])
    made.add_argument("--redrive", type=lambda text: pathlib.Path(text).resolve(), default=pathlib.Path(os.environ.get("REDRIVE", build / "redrive")).resolve())
    made.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=build, help=argparse.SUPPRESS)
    made.add_argument("--quick", action="store_true", help=quick)
    return made
