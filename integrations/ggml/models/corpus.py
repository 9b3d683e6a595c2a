# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The two texts: a list of documents, each a list of lines, from Debian's packages."""

import gzip
import re
import subprocess

JARGON = "/usr/share/doc/jargon-text/jargon.txt.gz"
PLAIN = str.maketrans({"‘": "'", "’": "'", "´": "'", "`": "'", "“": '"', "”": '"', "\xa0": " ",
		       "—": "-", "−": "-", "→": "->", "·": "", "×": "x", "•": "*"})


def kjv():
	"""The King James Bible (package bible-kjv): a document per chapter, a line per verse."""
	text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, text=True,
			      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
	docs, last = [], None
	for line in text.splitlines():
		ref, verse = line.split(maxsplit=1)
		chapter = ref.rsplit(":", 1)[0]
		if chapter != last:
			docs.append([])
		last = chapter
		docs[-1].append(verse.strip())
	return docs


def _is_prose(paragraph):
	"""Neither box drawing, a table of contents, a listing nor a picture."""
	letters = sum(c.isalpha() or c == " " for c in paragraph)
	return len(paragraph) > 40 and letters > 0.9 * len(paragraph) and paragraph[-1] in ".?!:)\"'"


def jargon():
	"""The Jargon File (package jargon-text): a document per entry or chapter, a line per paragraph."""
	with gzip.open(JARGON, "rt", encoding="utf-8") as f:
		text = f.read().translate(PLAIN)
	text = text[text.index("\nChapter 1. Hacker Slang"):text.rindex("\nBibliography\n")]
	text = re.sub(r"\{([^{}]*)\}", r"\1", text)	# {cross reference}
	docs, heading = [[]], None
	for block in re.split(r"\n\s*\n", text):
		if re.search("[─│┌└├═]", block) or block.startswith(("Chapter ", "Appendix ")):
			docs.append([])
			continue
		if re.search(r"\S {3,}\S", block) or re.search(r"^ {4,}", block, re.M):
			continue		# a listing, a picture or a centred title
		paragraph = " ".join(block.split())
		entry = re.match(r":(.+?): ?(.*)", paragraph)
		if entry:
			grammar = re.sub(r"/[^/]*/", "", entry[2])	# how it is pronounced
			grammar = re.sub(r"^[\s,;]+|(?<=,) (?=,)|[\s,;]+$", "", grammar)
			heading = entry[1] + ":" + (" " + grammar if grammar else "")
			docs.append([])
		elif heading:
			docs[-1].append(heading + " " + paragraph)
			heading = None
		elif _is_prose(paragraph):
			docs[-1].append(paragraph)
	return [d for d in docs if d]


VOICES = {"kjv": kjv, "jargon": jargon}
