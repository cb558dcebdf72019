"""Characters of the scripts that need rules of their own, one compiled pattern for each set."""

import re

HAN = re.compile("[\u3400-\u9fff]")  # also the hexagrams between the two blocks, which nobody writes
IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")  # the same without the hexagrams
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # Chinese, Japanese and Korean
