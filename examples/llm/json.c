// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * json.c - answers, what they took and what GMM did, for other programs
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llm.h"

/* Bytes of the character that begins at @s; 0 if it is not UTF-8. */
static int utf8_len(const unsigned char *s, const unsigned char *end)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int len = *s < 0x80	  ? 1
		  : *s >> 5 == 6  ? 2
		  : *s >> 4 == 14 ? 3
		  : *s >> 3 == 30 ? 4
				  : 0;
	uint32_t c = *s & (0xff >> (len + 1));

	if (len <= 1 || end - s < len)
		return len == 1;
	for (int i = 1; i < len; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c >= least[len] && c <= 0x10ffff && c >> 11 != 0x1b ? len : 0;
}

static void json_string(const char *key, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	const unsigned char *end = s + strlen(text);
	int len;

	printf("\"%s\": \"", key);
	for (; s < end; s += len ? len : 1) {
		len = utf8_len(s, end);
		if (!len)
			fputs("\\ufffd", stdout);
		else if (*s < 0x20)
			printf("\\u%04x", *s);
		else if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else
			fwrite(s, 1, (size_t)len, stdout);
	}
	putchar('"');
}

static void json_times(const struct answer *a)
{
	printf("\"prompt_tokens\": %d, \"prompt_s\": %.6f, \"tokens\": %d, "
	       "\"decoded\": %d, \"answer_s\": %.6f",
	       a->prompt_tokens, a->prompt_s, a->tokens, a->decoded,
	       a->answer_s);
}

static void json_counters(const char *what, const struct gm_stats *stats)
{
	static const char *const names[] = {
		"faults_cpu",	    "faults_xpu_read", "faults_xpu_write",
		"faults_coalesced", "faults_failed",   "zeroed",
		"to_xpu",	    "to_host",	       "xpu_to_xpu",
		"prefetched",	    "evicted_clean",   "evicted_dirty",
		"upgraded",	    "mapped_home",     "replicas_dropped",
		"bytes_to_xpu",	    "bytes_to_host",   "bytes_memcpy",
		"ns_copying",	    "ns_faults",       "residence_waits",
		"busy_waits",	    "fragmented",      "poisoned",
		"reclaims",	    "operator_errors",
	};
	const uint64_t *counters = (const uint64_t *)stats;

	_Static_assert(sizeof(names) / sizeof(*names) == NR_COUNTERS,
		       "a name for each counter of gmm.h, in its order");
	printf("\"%s\": {", what);
	for (size_t i = 0; i < NR_COUNTERS; i++)
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", names[i],
		       counters[i]);
	putchar('}');
}

void answer_json(const struct options *options, const char *prompt,
		 const struct answer *answer)
{
	putchar('{');
	json_string("prompt", prompt);
	fputs(", ", stdout);
	json_string("text", answer->text);
	fputs(", ", stdout);
	json_times(answer);
	if (options->xpu) {
		fputs(", ", stdout);
		json_counters("gmm", &answer->stats);
	}
	puts("}");
	fflush(stdout);
}

static void json_places(const struct run *run)
{
	struct places places = places_find(run);

	printf("\"xpu_memory\": %" PRIu64 ", \"pages\": {", places.xpu_memory);
	for (int i = 0; i < NR_USES; i++) {
		const struct pages *p = &places.of[i];

		printf("%s\"%s\": {\"cpu\": %" PRIu64 ", \"xpu\": %" PRIu64
		       ", \"both\": %" PRIu64 ", \"nowhere\": %" PRIu64 "}",
		       i ? ", " : "", use_names[i], p->cpu, p->xpu, p->both,
		       p->nowhere);
	}
	putchar('}');
}

static void json_written(void)
{
	struct written written = written_all();

	fputs(", \"written_back\": {", stdout);
	for (int i = 0; i < NR_USES; i++)
		printf("\"%s\": %" PRIu64 ", ", use_names[i], written.of[i]);
	printf("\"lost\": %" PRIu64 "}", written.lost);
}

void report_json(const struct run *run)
{
	const struct options *o = run->options;

	putchar('{');
	json_string("model", o->model);
	printf(", \"weights\": %" PRIu64 ", \"device\": \"%s\", "
	       "\"threads\": %d, \"load_s\": %.6f, ",
	       model_size(run->model), o->xpu ? "gmm" : "cpu", o->threads,
	       run->load.seconds);
	json_times(&run->total);
	printf(", \"peak_resident\": %" PRIu64 ", \"peak_anon\": %" PRIu64,
	       run->memory.resident, run->memory.anon);
	if (o->xpu) {
		fputs(", \"gmm\": {", stdout);
		json_counters(run->load.what, &run->load.stats);
		fputs(", ", stdout);
		json_counters(run->answers.what, &run->answers.stats);
		fputs(", ", stdout);
		json_places(run);
		json_written();
		putchar('}');
	}
	puts("}");
}
