"""Run `memory-proxy memory …` in this process."""

import argparse

from proxy.client.command_line import add_memory


def run_memory(*words: str) -> int:
    """Run `memory-proxy memory` with these words; return its exit status."""
    parser = argparse.ArgumentParser()
    add_memory(parser.add_subparsers().add_parser("memory"))
    args = parser.parse_args(["memory", *words])
    status: int = args.func(args)
    return status
