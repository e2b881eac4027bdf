"""`python -m ray_canal.cli` is the `ray-canal` command."""

from ray_canal.cli import main

if __name__ == "__main__":
    main()
