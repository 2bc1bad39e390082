"""`lookalike compare`."""


def main(args: list[str]) -> None:
    """Run the old command."""
    import lookalike.cli.train  # noqa: F401 - declares it
    from lookalike.cli.app import bridge

    bridge(["compare", *args])
