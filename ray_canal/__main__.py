"""`ray-canal`, also as `python -m ray_canal`: loads the command, and then runs it."""


def main() -> None:
    """Run the command line; see `ray_canal.cli.main`. Ctrl-C while it is loaded ends it with exit
    code 130, too."""
    try:
        from ray_canal.cli import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    command()


if __name__ == "__main__":
    main()
