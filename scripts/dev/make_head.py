"""Put a trained head in its place, proxy/models/heads/NAME.npz, with its card.

    .venv/bin/python scripts/dev/make_head.py relation out/relation.npz --card out/relation.json \
        --offset changed=0.3 --temperature 1.4

The card gets the head's name, the version of the encoder that ships, the checksum and the calibration.
"""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.models import weights

NAMES = ("message", "profile", "relevance", "relation", "statement", "forget")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "name", choices=("message", "profile", "relevance", "relation", "statement", "forget")
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("--card", type=Path, help="what training wrote of it: classes, scores")
    parser.add_argument("--offset", action="append", default=[], metavar="LABEL=NUMBER")
    parser.add_argument("--temperature", type=float, nargs="+")
    options = parser.parse_args()
    card = json.loads(options.card.read_text("utf-8")) if options.card else {}
    weights.DIRECTORY.mkdir(exist_ok=True)
    target = weights.DIRECTORY / f"{options.name}.npz"
    shutil.copyfile(options.weights, target)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    offsets = {label: float(number) for label, number in (given.split("=") for given in options.offset)}
    card |= {"name": options.name, "version": weights.ENCODER_NAME, "sha256": digest}
    card["offsets"] = card.get("offsets", {}) | offsets
    if options.temperature:
        one, *others = options.temperature
        card["temperature"] = [one, *others] if others else one
    card.pop("head", None)
    target.with_suffix(".json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", "utf-8")
    weights.read_head(options.name)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
