# SPDX-License-Identifier: MIT OR GPL-2.0-only
#
# make demo     llama.cpp on an XPU with room for half of the model
#      demo-index   an XPU works on an index with room for half of it
# make test     every test, in three builds; the last line is the result
# make build    build for development, in build/
# make check    the style and documentation checks only
# make format   write every C file as clang-format 14 does
# make bench    how fast it is, from a release build
# make install  a release build, to PREFIX (default /usr/local)
#
# Everything is built by Meson; this only saves typing.

BUILD = build
RELEASE = build-release
PREFIX = /usr/local
DESTDIR =
# With "no", llama.cpp is not fetched; without it, what needs it is left out.
LLAMA = yes
# The same of the kernel that the guest of the tests boots.
GUEST = yes
# The demo's language models.
MODELS = integrations/ggml/models
# What demo-index reads: the kernel's documentation, or any folder of text.
DOCS = .deps/linux-doc
JOBS = $(shell nproc)

.PHONY: demo demo-index test build fetch guest check format release bench install \
	clean

demo: build
	test -e .deps/llama/version || { \
		echo "the demo needs llama.cpp; make demo-index does not" >&2; \
		exit 1; }
	test -e .deps/random-600M.gguf || $(MODELS)/generate.py --size 600M \
		.deps/random-600M.gguf
	examples/llm/demo.sh $(BUILD)/examples/llm/llm \
		$(MODELS)/kjv.gguf "And the king said" \
		$(MODELS)/jargon.gguf "hacker: n." \
		.deps/random-600M.gguf "The LORD is my shepherd"

demo-index: build
	test "$(DOCS)" != .deps/linux-doc || scripts/fetch-docs $(DOCS)
	examples/index/demo.sh $(BUILD)/examples/index/index $(DOCS)

test:
	scripts/setup test
	$(MAKE) fetch guest
	scripts/test-all

build:
	scripts/setup build
	$(MAKE) fetch
	scripts/configure $(BUILD)
	ninja -C $(BUILD) -j $(JOBS)

fetch:
	test "$(LLAMA)" = no || scripts/fetch-llama .deps/llama

# What tests/guest boots. Without it that test is skipped, with a word.
guest:
	test "$(GUEST)" = no || scripts/fetch-guest .deps/guest

check: build
	scripts/setup test
	meson test -C $(BUILD) --no-rebuild --print-errorlogs --suite check

format:
	git ls-files -z '*.c' '*.h' | xargs -0 clang-format-14 -i

release:
	scripts/setup build
	grep -qsxF '$(PREFIX)' $(RELEASE)/prefix || { \
		meson setup $(RELEASE) --buildtype=release --prefix=$(PREFIX) \
			$$(test ! -e $(RELEASE)/build.ninja || echo --reconfigure) && \
		echo '$(PREFIX)' >$(RELEASE)/prefix; }
	scripts/configure $(RELEASE)
	ninja -C $(RELEASE) -j $(JOBS)

bench: release
	$(RELEASE)/bench/gmm-bench

install: release
	DESTDIR=$(abspath $(DESTDIR)) meson install -C $(RELEASE) --no-rebuild

clean:
	rm -rf build build-asan build-tsan build-release
