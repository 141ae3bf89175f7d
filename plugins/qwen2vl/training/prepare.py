"""Collects fonts, words and easy-vqa into one data folder (run once, on any machine).

python prepare.py --fonts /usr/share --words /usr/share/dict/american-english --out DATA
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

import numpy as np
from fonts import HELD_OUT_FAMILY, TRAIN_FAMILIES, Family
from PIL import Image
from vision import resize_like_processor


def collect_fonts(root: Path, out: Path) -> None:
    """Copies every face that `fonts.py` names from below `root` to `out/fonts`."""
    found: dict[str, Path] = {}
    for path in sorted(root.rglob("*.[to]tf")):
        found[path.name] = path
    (out / "fonts").mkdir(parents=True, exist_ok=True)
    table = []
    for family in (*TRAIN_FAMILIES, HELD_OUT_FAMILY):
        table.append(_copy_family(family, found, out / "fonts"))
    (out / "fonts.json").write_text(json.dumps(table, indent=1))


def _copy_family(family: Family, found: dict[str, Path], out: Path) -> dict[str, object]:
    missing = [face for face in family.faces if face not in found]
    if missing:
        raise FileNotFoundError(f"{family.name} (Debian package {family.package}) lacks {missing}")
    for face in family.faces:
        shutil.copyfile(found[face], out / face)
    return {"family": family.name, "faces": list(family.faces), "held_out": family is HELD_OUT_FAMILY}


def collect_words(path: Path, out: Path) -> None:
    """Keeps the plain ASCII words of 2 to 14 letters."""
    words = {word for word in path.read_text("utf-8").split() if re.fullmatch("[A-Za-z]?[a-z]{1,13}", word)}
    (out / "words.txt").write_text("\n".join(sorted(words)) + "\n")


def collect_easy_vqa(out: Path) -> None:
    """Stores both splits of easy-vqa 1.0: pictures after the processor's resize, questions, answers."""
    import easy_vqa

    record: dict[str, object] = {}
    pictures: dict[str, np.ndarray] = {}
    for split in ("train", "test"):
        paths = getattr(easy_vqa, f"get_{split}_image_paths")()
        order = sorted(paths)
        pictures[split] = np.stack(
            [resize_like_processor(Image.open(paths[i]).convert("RGB")) for i in order]
        )
        questions, answers, ids = getattr(easy_vqa, f"get_{split}_questions")()
        place = {image_id: i for i, image_id in enumerate(order)}
        record[split] = [[q, a, place[i]] for q, a, i in zip(questions, answers, ids, strict=True)]
    np.savez_compressed(out / "easy_vqa.npz", train=pictures["train"], test=pictures["test"])
    (out / "easy_vqa.json").write_text(json.dumps(record))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fonts", type=Path, required=True)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    collect_fonts(args.fonts, args.out)
    collect_words(args.words, args.out)
    collect_easy_vqa(args.out)


if __name__ == "__main__":
    main()
