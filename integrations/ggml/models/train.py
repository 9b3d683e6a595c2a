#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Train a small model of the llama architecture on one of two texts, and write it as GGUF (F16)."""

import argparse
import math
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import corpus
from tokenizer import BOS, EOS, UNK, Tokenizer

LAYERS, DIM, FFN, HEADS, CONTEXT = 4, 256, 1024, 8, 512
HEAD = DIM // HEADS
EPS, THETA = 1e-5, 10000.0
NAMES = {"kjv": "King James Bible", "jargon": "Jargon File"}


class RootMeanSquare(torch.autograd.Function):
	"""x over its root mean square along the last axis: by hand, for it is a good part of the time."""

	@staticmethod
	def forward(ctx, x):
		r = torch.rsqrt(x.square().sum(-1, keepdim=True) / DIM + EPS)
		y = x * r
		ctx.save_for_backward(y, r)
		return y

	@staticmethod
	def backward(ctx, g):
		y, r = ctx.saved_tensors
		return (g - y * ((g * y).sum(-1, keepdim=True) / DIM)) * r


class Norm(nn.Module):
	def __init__(self):
		super().__init__()
		self.weight = nn.Parameter(torch.ones(DIM))

	def forward(self, x):
		return RootMeanSquare.apply(x) * self.weight


def linear(n_in, n_out, scale=1.0):
	layer = nn.Linear(n_in, n_out, bias=False)
	nn.init.normal_(layer.weight, std=scale / math.sqrt(n_in))
	return layer


class Block(nn.Module):
	"""Attention, then a gated feed-forward network. In training whole channels of what they add are dropped."""

	def __init__(self, dropout):
		super().__init__()
		self.norm1, self.norm2 = Norm(), Norm()
		self.q, self.k, self.v = linear(DIM, DIM), linear(DIM, DIM), linear(DIM, DIM)
		self.out = linear(DIM, DIM, 1 / math.sqrt(2 * LAYERS))
		self.gate, self.up = linear(DIM, FFN), linear(DIM, FFN)
		self.down = linear(FFN, DIM, 1 / math.sqrt(2 * LAYERS))
		self.dropout = dropout

	def drop(self, x):
		if not self.training or not self.dropout:
			return x
		keep = torch.rand(x.shape[0], 1, DIM) >= self.dropout
		return x * (keep / (1 - self.dropout)).to(x.dtype)

	def forward(self, x, cos, sin, mask):
		b, t, _ = x.shape
		h = self.norm1(x)
		q, k, v = (w(h).view(b, t, HEADS, HEAD).transpose(1, 2) for w in (self.q, self.k, self.v))
		q, k = rotate(q, cos, sin) * HEAD ** -0.5, rotate(k, cos, sin)
		scores = q.reshape(b * HEADS, t, HEAD) @ k.reshape(b * HEADS, t, HEAD).transpose(1, 2)
		a = torch.softmax(scores + mask, -1, dtype=scores.dtype) @ v.reshape(b * HEADS, t, HEAD)
		a = a.view(b, HEADS, t, HEAD).transpose(1, 2).reshape(b, t, DIM)
		x = x + self.drop(self.out(a))
		h = self.norm2(x)
		return x + self.drop(self.down(F.silu(self.gate(h)) * self.up(h)))


def rotate(x, cos, sin):
	"""Rotary positions on halves; llama.cpp pairs neighbours, which export() allows for."""
	a, b = x.chunk(2, -1)
	return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Model(nn.Module):
	def __init__(self, vocabulary, dropout=0.0):
		super().__init__()
		self.embed = nn.Embedding(vocabulary, DIM)
		nn.init.normal_(self.embed.weight, std=1 / math.sqrt(DIM))
		self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
		self.norm = Norm()

	def forward(self, ids, dtype=torch.float32):
		t = ids.shape[1]
		angle = torch.arange(t)[:, None] * THETA ** (-torch.arange(0, HEAD, 2) / HEAD)
		cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
		mask = torch.full((t, t), -1e4).triu(1).to(dtype)
		x = self.embed(ids)
		for block in self.blocks:
			x = block(x, cos, sin, mask)
		return F.linear(self.norm(x), self.embed.weight)


class Samples:
	"""Windows of a text that begin at a line, with the token of a beginning before it, as a prompt does."""

	def __init__(self, docs, tok, length):
		self.length, ids, starts = length, [], []
		for doc in docs:
			for line in doc:
				starts.append(len(ids))
				ids.extend(tok.encode(line + "\n"))
		self.ids = torch.tensor(ids)
		self.starts = torch.tensor([s for s in starts if s + length <= len(ids)])
		self.tokens = len(ids)

	def get(self, picks):
		rows = [self.ids[s:s + self.length] for s in self.starts[picks].tolist()]
		y = torch.stack(rows)
		return torch.cat((torch.full((len(y), 1), BOS), y[:, :-1]), 1), y

	def random(self, n):
		return self.get(torch.randint(len(self.starts), (n,)))


def loss_of(model, x, y):
	with torch.autocast("cpu", dtype=torch.bfloat16):
		logits = model(x, torch.bfloat16)
	return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def evaluate(model, samples, batch):
	model.eval()
	picks = torch.linspace(0, len(samples.starts) - 1, 4 * batch).long()
	with torch.no_grad():
		losses = [loss_of(model, *samples.get(p)).item() for p in picks.split(batch)]
	model.train()
	return sum(losses) / len(losses)


def interleave(w):
	"""Rows of every head from halves to neighbouring pairs."""
	return w.view(HEADS, 2, HEAD // 2, DIM).transpose(1, 2).reshape(DIM, DIM)


def export(model, tok, voice, path):
	import gguf
	temporary = path + ".part"
	out = gguf.GGUFWriter(temporary, "llama")
	out.add_name(f"gmm-{voice}")
	out.add_description(f"A small model of the text of the {NAMES[voice]}")
	out.add_license("CC0-1.0")
	out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
	out.add_vocab_size(len(tok))
	out.add_context_length(CONTEXT)
	out.add_embedding_length(DIM)
	out.add_block_count(LAYERS)
	out.add_feed_forward_length(FFN)
	out.add_head_count(HEADS)
	out.add_head_count_kv(HEADS)
	out.add_rope_dimension_count(HEAD)
	out.add_rope_freq_base(THETA)
	out.add_layer_norm_rms_eps(EPS)
	texts, scores, types = tok.vocabulary()
	out.add_tokenizer_model("llama")
	out.add_token_list(texts)
	out.add_token_scores(scores)
	out.add_token_types(types)
	out.add_bos_token_id(BOS)
	out.add_eos_token_id(EOS)
	out.add_unk_token_id(UNK)
	out.add_add_bos_token(True)
	out.add_add_eos_token(False)
	out.add_add_space_prefix(False)

	def add(name, w):
		a = w.detach().numpy()
		out.add_tensor(name + ".weight", a.astype(np.float16 if a.ndim == 2 else np.float32))

	add("token_embd", model.embed.weight)
	for i, b in enumerate(model.blocks):
		for name, w in (("attn_norm", b.norm1.weight), ("attn_output", b.out.weight),
				("attn_q", interleave(b.q.weight)), ("attn_k", interleave(b.k.weight)),
				("attn_v", b.v.weight), ("ffn_norm", b.norm2.weight),
				("ffn_gate", b.gate.weight), ("ffn_up", b.up.weight), ("ffn_down", b.down.weight)):
			add(f"blk.{i}.{name}", w)
	add("output_norm", model.norm.weight)
	out.write_header_to_file()
	out.write_kv_data_to_file()
	out.write_tensors_to_file()
	out.close()
	os.replace(temporary, path)


def save(path, model, optimizer, step):
	torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
		    "random": torch.get_rng_state()}, path + ".part")
	os.replace(path + ".part", path)


def load(path, model, optimizer):
	state = torch.load(path)
	model.load_state_dict(state["model"])
	optimizer.load_state_dict(state["optimizer"])
	torch.set_rng_state(state["random"])
	return state["step"]


def train(args, tok, docs):
	held_out = docs[25::50]
	samples = Samples([d for i, d in enumerate(docs) if i % 50 != 25], tok, args.length)
	held = Samples(held_out, tok, args.length)
	model = Model(len(tok), args.dropout)
	params = sum(p.numel() for p in model.parameters())
	matrices = [p for p in model.parameters() if p.ndim == 2]
	vectors = [p for p in model.parameters() if p.ndim == 1]
	optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": args.decay},
				       {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.95))
	epoch = samples.tokens / (args.batch * args.length)
	print(f"{args.voice}: {params} parameters, {len(tok)} tokens of vocabulary, {samples.tokens} of text; "
	      f"{args.steps} steps of {args.batch * args.length}: {args.steps / epoch:.1f} epochs", flush=True)
	first = 0
	if args.checkpoint and os.path.exists(args.checkpoint):
		first = load(args.checkpoint, model, optimizer)
	began = saved = time.monotonic()
	for step in range(first, args.steps):
		warm, progress = min(1, (step + 1) / 60), step / args.steps
		for group in optimizer.param_groups:
			group["lr"] = args.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
		loss = loss_of(model, *samples.random(args.batch))
		optimizer.zero_grad()
		loss.backward()
		nn.utils.clip_grad_norm_(model.parameters(), 1.0)
		optimizer.step()
		now = time.monotonic()
		if step % 100 == 99 or step + 1 == args.steps:
			speed = (step + 1 - first) * args.batch * args.length / (now - began)
			print(f"{step + 1:6} loss {loss.item():.3f} held out {evaluate(model, held, 8):.3f} "
			      f"{speed:.0f} tokens/s {now - began:.0f} s", flush=True)
		if now - saved > args.save_every or step + 1 == args.steps:
			export(model, tok, args.voice, args.out)
			if args.checkpoint:
				save(args.checkpoint, model, optimizer, step + 1)
			saved = now


def arguments():
	p = argparse.ArgumentParser(description=__doc__)
	p.add_argument("voice", choices=corpus.VOICES)
	p.add_argument("out", help="the GGUF to write")
	p.add_argument("--llama-src", default=".deps/llama/src",
		       help="a tree of llama.cpp, for gguf-py (%(default)s)")
	p.add_argument("--vocabulary", type=int, default=2560)
	p.add_argument("--steps", type=int, default=2400)
	p.add_argument("--batch", type=int, default=8, help="samples of a step (%(default)s)")
	p.add_argument("--length", type=int, default=256, help="tokens of a sample (%(default)s)")
	p.add_argument("--rate", type=float, default=2e-3)
	p.add_argument("--decay", type=float, default=0.1)
	p.add_argument("--dropout", type=float, default=0.1)
	p.add_argument("--seed", type=int, default=1)
	p.add_argument("--threads", type=int, default=1)
	p.add_argument("--checkpoint", help="a file to save the state of the training in, and to go on from")
	p.add_argument("--save-every", type=float, default=300, help="seconds (%(default)s)")
	args = p.parse_args()
	if not os.path.isdir(os.path.join(args.llama_src, "gguf-py")):
		p.error(f"--llama-src: no gguf-py in {args.llama_src}")
	return args


def main():
	args = arguments()
	sys.path.insert(0, os.path.join(args.llama_src, "gguf-py"))
	torch.manual_seed(args.seed)
	torch.set_num_threads(args.threads)
	docs = corpus.VOICES[args.voice]()
	tok = Tokenizer.train("\n".join("\n".join(d) for d in docs) + "\n", args.vocabulary)
	train(args, tok, docs)


if __name__ == "__main__":
	main()
