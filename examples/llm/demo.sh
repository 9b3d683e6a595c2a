#!/bin/sh
# SPDX-License-Identifier: MIT OR GPL-2.0-only
#
# demo.sh - language models on an XPU with room for half of their weights
#
# usage: demo.sh [-n TOKENS] PROGRAM MODEL PROMPT [MODEL PROMPT]...
#
# llama.cpp computes each text twice: on the XPU, whose memory GMM manages, and
# on the CPU alone. The texts must be the same to the last byte.
set -eu

usage="usage: $0 [-n TOKENS] PROGRAM MODEL PROMPT [MODEL PROMPT]..."
tokens=100
if [ "${1-}" = -n ] && [ $# -gt 1 ]; then
	tokens=$2
	shift 2
fi
if [ $# -lt 3 ] || [ $(($# % 2)) -eq 0 ]; then
	echo "$usage" >&2
	exit 2
fi
program=$1
shift

# Room for a prompt of 60 tokens; more would be more states to keep.
options="--report --tokens $tokens --context $((tokens + 60))"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# run FILE COMMAND...: the text goes into FILE, and is shown as it comes; what
# the command has to report is shown after it
run()
{
	file=$1
	shift
	{ "$@" 2>"$work/report" || echo "$?" >"$work/failed"; } | tee "$file"
	if [ -e "$work/failed" ]; then
		cat "$work/report" >&2
		exit 1
	fi
	cat "$work/report"
}

# MiB of half of a file, in whole pages of 2 MiB.
half()
{
	pages=$((($(stat -L -c %s "$1") + 4194303) / 4194304))
	echo $((2 * pages))
}

texts=0
while [ $# -gt 0 ]; do
	model=$1
	prompt=$2
	shift 2
	[ -r "$model" ] || { echo "$0: there is no model $model" >&2; exit 2; }
	memory=$(half "$model")
	[ "$memory" -ge 4 ] || {
		echo "$0: $model is too small for a GPU that is half of it" >&2
		exit 2
	}

	echo "== $(basename "$model"), on an XPU with $memory MiB"
	# shellcheck disable=SC2086 # several options
	run "$work/xpu" env SGPU_MEMORY="${memory}M" \
		"$program" --device gmm $options "$model" "$prompt"
	echo "== $(basename "$model"), on the CPU alone"
	# shellcheck disable=SC2086 # several options
	run "$work/cpu" "$program" --device cpu $options "$model" "$prompt"
	if ! cmp "$work/xpu" "$work/cpu" >&2; then
		echo "FAILED: the XPU and the CPU tell different stories" >&2
		exit 1
	fi
	printf '%s\n' "$prompt" >"$work/prompt"
	! cmp -s "$work/xpu" "$work/prompt" || {
		echo "FAILED: $model has nothing to say" >&2
		exit 1
	}
	echo "== the same, to the last of $(wc -c <"$work/xpu") bytes"
	echo
	texts=$((texts + 1))
done
echo "The XPU and the CPU wrote the same in all of $texts texts."
