#!/bin/sh
# SPDX-License-Identifier: MIT OR GPL-2.0-only
#
# demo.sh - index the documents of a directory, with an independent check
#
# usage: demo.sh PROGRAM DIRECTORY [PATTERN...]
#
# The program counts every word on an XPU and compares with the CPU. Here the
# same text is counted again, by grep, sort and uniq, and must agree word by
# word.
set -eu

[ $# -ge 2 ] || { echo "usage: $0 PROGRAM DIRECTORY [PATTERN...]" >&2; exit 2; }
program=$1
docs=$2
shift 2
[ $# -gt 0 ] || set -- '*'
[ -d "$docs" ] || { echo "$0: no directory $docs" >&2; exit 2; }

# The results do not depend on the language of the user.
LC_ALL=C
export LC_ALL

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

for pattern in "$@"; do
	find "$docs" -type f -size +0 -name "$pattern"
done | sort -u >"$work/list"
[ -s "$work/list" ] || { echo "$0: no documents in $docs" >&2; exit 2; }

"$program" "$work/list" "$work/xpu"

# Longer words are cut, as index.h says.
xargs -d '\n' grep -aohE '[A-Za-z]+' <"$work/list" |
	tr '[:upper:]' '[:lower:]' | cut -c1-64 | sort | uniq -c | awk '{ print $1, $2 }' >"$work/uniq"
sort -k2 "$work/xpu" >"$work/xpu.sorted"
sort -k2 "$work/uniq" >"$work/uniq.sorted"
if ! cmp -s "$work/xpu.sorted" "$work/uniq.sorted"; then
	echo "FAILED: the XPU and sort | uniq -c count differently:" >&2
	diff "$work/xpu.sorted" "$work/uniq.sorted" | head -20 >&2 || true
	exit 1
fi
printf '\n4. "sort | uniq -c" finds the same: %s different words, %s words in all.\n' \
	"$(wc -l <"$work/uniq")" "$(awk '{ n += $1 } END { print n }' "$work/uniq")"
echo "   The most frequent: $(sort -rn "$work/uniq" | head -8 |
	awk '{ printf "%s%s %s", n++ ? ", " : "", $2, $1 }')"
echo "Every result is right."
