#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Write a GGUF model of the llama architecture of about a given size, with random weights.

Its text means nothing; it is for measuring and testing with models of any size. The same arguments give the
same bytes. The vocabulary is that of another GGUF.
"""

import argparse
import math
import os
import re
import sys
from statistics import NormalDist

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK = 1 << 20		# weights made at a time
CLOSE = 0.05		# of the wished size
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
BLOCK = {"q8_0": (32, 34), "q4_0": (32, 18), "f16": (1, 2), "f32": (1, 4)}	# weights, bytes


def size_argument(text):
	m = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]i?|)B?", text)
	if not m or float(m[1]) == 0:
		raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 600M, 1.5G or 2Gi")
	return round(float(m[1]) * UNITS[m[2]])


def embd_argument(text):
	if not text.isascii() or not text.isdigit() or int(text) % 256 or not 256 <= int(text) <= 32768:
		raise argparse.ArgumentTypeError(f"'{text}' is not a multiple of 256 from 256 to 32768")
	return int(text)


def count_argument(lowest, highest):
	def parse(text):
		if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= highest:
			raise argparse.ArgumentTypeError(f"'{text}' is not a number from {lowest} to {highest}")
		return int(text)
	return parse


class Shape:
	"""What a model of this architecture looks like: its parameters and its tensors."""

	def __init__(self, vocabulary, layers, embd, ffn):
		self.vocabulary, self.layers, self.embd, self.ffn = vocabulary, layers, embd, ffn
		self.heads = embd // (64 if embd < 2048 else 128)
		self.heads_kv = self.heads if embd < 1024 else self.heads // (2 if self.heads % 4 else 4)
		self.head = embd // self.heads

	def tensors(self):
		"""Name, rows and row length of each; a norm has no rows."""
		e, f, kv = self.embd, self.ffn, self.heads_kv * self.head
		yield "token_embd", self.vocabulary, e
		for i in range(self.layers):
			for name, rows, row in (("attn_norm", 0, e), ("attn_q", e, e), ("attn_k", kv, e), ("attn_v", kv, e),
						("attn_output", e, e), ("ffn_norm", 0, e), ("ffn_gate", f, e),
						("ffn_up", f, e), ("ffn_down", e, f)):
				yield f"blk.{i}.{name}", rows, row
		yield "output_norm", 0, e
		yield "output", self.vocabulary, e

	def layer_weights(self):
		return self.embd * (2 * self.embd + 2 * self.heads_kv * self.head + 3 * self.ffn)

	def bytes(self, kind):
		weights, size = BLOCK[kind]
		matrices = 2 * self.vocabulary * self.embd + self.layers * self.layer_weights()
		return matrices * size // weights + 4 * self.embd * (2 * self.layers + 1)


def shape_for(size, kind, vocabulary, layers=None, embd=None):
	"""The most usual-looking shape within CLOSE of the size: about embd/128 layers, ffn about 3 embd."""
	best = None
	for e in [embd] if embd else range(256, 16385, 256):
		one = Shape(vocabulary, 1, e, 0)
		left = size * BLOCK[kind][0] / BLOCK[kind][1] - 2 * vocabulary * e
		for n in [layers] if layers else range(1, 257):
			f = round((left / n - one.layer_weights()) / (3 * e * 256)) * 256
			if not 256 <= f <= 16 * e:
				continue
			shape = Shape(vocabulary, n, e, f)
			off = abs(shape.bytes(kind) / size - 1)
			odd = 40 * off + abs(math.log(n * 128 / e)) + 2 * abs(math.log(f / (3 * e)))
			if off <= CLOSE and (best is None or odd < best[0]):
				best = odd, shape
	return best and best[1]


class Weights:
	"""Random weights of variance 1/row length, so that a row times normed values has variance 1."""

	def __init__(self, kind, seed):
		self.kind, self.random = kind, np.random.SFC64(seed)
		if kind in ("f16", "f32"):
			normal = NormalDist()
			self.normal = np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)], np.float32)

	def bits(self, count, dtype):
		size = np.dtype(dtype).itemsize
		return self.random.random_raw(-(-count * size // 8)).view(dtype)[:count]

	def write(self, file, count, row):
		deviation = 1 / math.sqrt(row)
		while count:
			n = min(count, CHUNK)
			if self.kind in ("f16", "f32"):
				table = (self.normal * deviation).astype("<f2" if self.kind == "f16" else "<f4")
				file.write(table.take(self.bits(n, np.uint16)))
			else:
				file.write(self.blocks(n // 32, deviation))
			count -= n

	def blocks(self, n, deviation):
		"""Blocks of evenly spread numbers and a scale; its sign is random, and so there is no bias."""
		size = BLOCK[self.kind][1]
		levels = 255 if self.kind == "q8_0" else 16
		block = self.bits(n * size, np.uint8).reshape(n, size)
		scale = np.float16(deviation / math.sqrt((levels**2 - 1) / 12))
		sign = (block[:, 0] & 1).astype(np.uint16) << 15
		if self.kind == "q8_0":		# -128 is no number of a Q8_0
			numbers = block.view(np.int8)
			np.maximum(numbers, -127, out=numbers)
		block[:, :2] = (sign | scale.view(np.uint16)).astype("<u2").view(np.uint8).reshape(n, 2)
		return block


def copy_tokenizer(gguf, source, out):
	"""Returns how many tokens there are, and how many of them come before the first ordinary one."""
	tokens, types = [], []
	try:
		fields = gguf.GGUFReader(source).fields
	except (ValueError, IndexError) as e:
		raise ValueError(f"{source} is not a GGUF: {e}") from e
	for field in fields.values():
		if not field.name.startswith("tokenizer."):
			continue
		value = field.contents()
		out.add_key_value(field.name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
		if field.name == "tokenizer.ggml.tokens":
			tokens = value
		elif field.name == "tokenizer.ggml.token_type":
			types = value
	ordinary = gguf.TokenType.NORMAL
	return len(tokens), types.index(ordinary) if ordinary in types else 0


def describe(gguf, out, shape, kind):
	out.add_name(f"random-{kind}-{shape.layers}x{shape.embd}")
	out.add_file_type({"q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
			   "f16": gguf.LlamaFileType.MOSTLY_F16, "f32": gguf.LlamaFileType.ALL_F32}[kind])
	out.add_quantization_version(gguf.GGML_QUANT_VERSION)
	out.add_vocab_size(shape.vocabulary)
	out.add_context_length(4096)
	out.add_embedding_length(shape.embd)
	out.add_block_count(shape.layers)
	out.add_feed_forward_length(shape.ffn)
	out.add_head_count(shape.heads)
	out.add_head_count_kv(shape.heads_kv)
	out.add_rope_dimension_count(shape.head)
	out.add_rope_freq_base(10000.0)
	out.add_layer_norm_rms_eps(1e-5)


def generate(gguf, args, temporary):
	out = gguf.GGUFWriter(temporary, "llama")
	vocabulary, special = copy_tokenizer(gguf, args.tokenizer, out)
	if not vocabulary:
		return f"--tokenizer: no vocabulary in {args.tokenizer}"
	shape = shape_for(args.size, args.type, vocabulary, args.layers, args.embd)
	if not shape:
		return f"--size: no shape of {args.type} is within {CLOSE:.0%} of {args.size} bytes with these arguments"
	describe(gguf, out, shape, args.type)
	weights, size = BLOCK[args.type]
	kind = gguf.GGMLQuantizationType[args.type.upper()]
	for name, rows, row in shape.tensors():
		if rows:
			out.add_tensor_info(name + ".weight", (rows, row), np.dtype(np.float32),
					    rows * row // weights * size, kind)
		else:
			out.add_tensor_info(name + ".weight", (row,), np.dtype(np.float32), 4 * row)
	out.write_header_to_file()
	out.write_kv_data_to_file()
	out.write_ti_data_to_file()
	file, random = out.fout[0], Weights(args.type, args.seed)
	out.write_padding(file, file.tell())
	for name, rows, row in shape.tensors():	# all lengths are multiples of the alignment
		if name == "output":	# the text neither ends early nor has half characters
			file.write(bytes(special * row // weights * size))
			random.write(file, (rows - special) * row, row)
		elif rows:
			random.write(file, rows * row, row)
		else:
			file.write(np.ones(row, "<f4"))
	out.close()
	print(f"{args.out}: {os.path.getsize(temporary)} bytes, {shape.layers} layers, embd {shape.embd}, "
	      f"ffn {shape.ffn}, {shape.heads} heads, {shape.heads_kv} of keys and values")
	return None


def main():
	p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
	p.add_argument("out", help="the GGUF to write")
	p.add_argument("--size", type=size_argument, required=True, help="such as 600M, 1.5G or 2Gi")
	p.add_argument("--type", choices=BLOCK, default="q8_0", help="of the weights (%(default)s)")
	p.add_argument("--layers", type=count_argument(1, 256))
	p.add_argument("--embd", type=embd_argument)
	p.add_argument("--seed", type=count_argument(0, 2**64 - 1), default=0)
	p.add_argument("--tokenizer", default=os.path.join(HERE, "kjv.gguf"), help="a GGUF with a vocabulary (kjv.gguf)")
	p.add_argument("--llama-src", default=".deps/llama/src", help="a tree of llama.cpp, for gguf-py (%(default)s)")
	args = p.parse_args()
	if not os.path.isdir(os.path.join(args.llama_src, "gguf-py")):
		p.error(f"--llama-src: no gguf-py in {args.llama_src}")
	if not os.path.isfile(args.tokenizer):
		p.error(f"--tokenizer: no file {args.tokenizer}")
	sys.path.insert(0, os.path.join(args.llama_src, "gguf-py"))
	import gguf
	temporary = args.out + ".part"
	try:
		error = generate(gguf, args, temporary)
		if error:
			p.error(error)
		os.replace(temporary, args.out)
	except (OSError, ValueError) as e:
		sys.exit(f"{p.prog}: {e}")
	finally:
		if os.path.exists(temporary):
			os.unlink(temporary)


if __name__ == "__main__":
	main()
