"""``python -m proof.pictures``: draw the pictures of the documents anew."""

from proof.guarantees.__main__ import published
from proof.pictures.draw import all_pictures
from servers.jars import ROOT

FOLDER = ROOT / "docs/pictures"


def main() -> None:
    """Write every picture into the documents."""
    for name, picture in all_pictures(published()).items():
        (FOLDER / name).write_text(picture)
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
