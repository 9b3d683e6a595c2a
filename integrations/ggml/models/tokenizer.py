# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Byte-pair encoding in the form that llama.cpp calls "llama" (SentencePiece with byte fallback).

The score of a token is minus its rank, and encoding joins, again and again, the two neighbours whose
concatenation has the best score. No token spans two classes of characters, and the mark for a space only
ever stands first, so that a word can be encoded by itself with the same result as the whole text.
"""

import collections
import re

SPACE = "\u2581"
UNK, BOS, EOS, BYTE0, FIRST = 0, 1, 2, 3, 3 + 256
WORD = re.compile(SPACE + r"?(?:[^\W\d_]|')+|" + SPACE + r"?\d|" + SPACE + r"?[^\w\s'" + SPACE + r"]+|.|\n")


def _words(text):
	return WORD.findall(text.replace(" ", SPACE))


class Tokenizer:
	def __init__(self, pieces):
		"""pieces: the ordinary tokens, best first."""
		self.pieces = pieces
		self.rank = {p: i for i, p in enumerate(pieces)}
		self.cache = {}

	def __len__(self):
		return FIRST + len(self.pieces)

	@classmethod
	def train(cls, text, size):
		"""Join the commonest pair of neighbours until there are size tokens, the special ones included."""
		words = collections.Counter(_words(text))
		chars = collections.Counter()
		for w, n in words.items():
			chars.update({c: n * w.count(c) for c in set(w)})
		base = [c for c, n in sorted(chars.items(), key=lambda x: (-x[1], x[0])) if n >= 20 and c != "\n"]
		split, pairs, where = {}, collections.Counter(), collections.defaultdict(set)

		def count(w, sign):
			s = split[w]
			for pair in zip(s, s[1:]):
				pairs[pair] += sign * words[w]
				where[pair].add(w)

		for w in words:
			split[w] = list(w)
			if all(c in chars and chars[c] >= 20 for c in w):
				count(w, 1)
		merged, known = [], set()
		while FIRST + len(merged) + len(base) < size:
			pair = max(pairs, key=lambda p: (pairs[p], p))
			if pairs[pair] < 2:
				raise ValueError(f"the text is too short for {size} tokens")
			joined = pair[0] + pair[1]
			if joined not in known:
				known.add(joined)
				merged.append(joined)
			for w in where.pop(pair):
				if pair not in zip(split[w], split[w][1:]):
					continue
				count(w, -1)
				split[w] = cls._join(split[w], joined)
				count(w, 1)
			del pairs[pair]
		return cls(merged + base)

	@staticmethod
	def _join(symbols, joined):
		out, i = [], 0
		while i < len(symbols):
			if i + 1 < len(symbols) and symbols[i] + symbols[i + 1] == joined:
				out.append(joined)
				i += 2
			else:
				out.append(symbols[i])
				i += 1
		return out

	def _encode_word(self, word):
		s = list(word)
		while len(s) > 1:
			best = min((self.rank.get(a + b, len(self.rank)), i) for i, (a, b) in enumerate(zip(s, s[1:])))
			if best[0] == len(self.rank):
				break
			i = best[1]
			s[i:i + 2] = [s[i] + s[i + 1]]
		ids = []
		for p in s:
			if p in self.rank:
				ids.append(FIRST + self.rank[p])
			else:
				ids.extend(BYTE0 + b for b in p.encode())
		return ids

	def encode(self, text):
		ids = []
		for w in _words(text):
			if w not in self.cache:
				self.cache[w] = self._encode_word(w)
			ids.extend(self.cache[w])
		return ids

	def vocabulary(self):
		"""Texts, scores and GGUF types of all tokens, in the order of their numbers."""
		texts = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + self.pieces
		scores = [0.0] * FIRST + [-float(i) for i in range(len(self.pieces))]
		types = [2, 3, 3] + [6] * 256 + [1] * len(self.pieces)
		return texts, scores, types
