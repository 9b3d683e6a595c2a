/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * missing.c - what the backend needs is not there: it says so, and the program
 * goes on with the CPU
 */
#include <limits.h>
#include <sys/stat.h>

#include "harness.h"

/**
 * struct lack - what is different for this child
 * @name: of a variable, or NULL
 * @value: of it
 * @plugin: the backend, if it is not the one of the build
 */
struct lack {
	const char *name;
	const char *value;
	const char *plugin;
};

/* As a program does that knows nothing of us. */
static int goes_on(void *arg)
{
	const struct lack *lack = arg;
	char text[TEXT_MAX];

	if (lack->name)
		env(lack->name, lack->value);
	env("GGML_BACKEND_PATH",
	    lack->plugin ? lack->plugin : file_of("GGML_TEST_PLUGIN"));
	cpu_load();
	if (ggml_backend_reg_by_name("GMM") || ggml_backend_dev_by_name("GMM0"))
		return 1;
	if (ggml_backend_load(getenv("GGML_BACKEND_PATH")))
		return 2;
	cpu_text(kjv(), PROMPT, 4, text);
	fprintf(stderr, "<%s>", text);
	return 0;
}

static char right[8192];

/* A child of its own, for this process is to load nothing that children load. */
static int right_text(void *arg)
{
	char text[TEXT_MAX];

	cpu_load();
	cpu_text(kjv(), PROMPT, 4, text);
	fprintf(stderr, "<%s>", text);
	return 0;
}

static void begin(void)
{
	struct outcome o = in_child(right_text, NULL, 20);

	ck_assert(exited(o, 0) && *o.said == '<');
	strcpy(right, o.said);
}

static void says(struct lack lack, const char *what)
{
	struct outcome o = in_child(goes_on, &lack, 20);

	ck_assert_msg(exited(o, 0), "%#x: %s", o.status, o.said);
	ck_assert_msg(strstr(o.said, right), "%s, not %s", o.said, right);
	ck_assert_msg(strstr(o.said, "ggml-gmm: ") && strstr(o.said, what),
		      "not a word of %s: %s", what, o.said);
}

START_TEST(no_device_program)
{
	begin();
	says((struct lack){ "SGPU_PROGRAM", "/none/sgpu-device", NULL },
	     "/none/sgpu-device");
}
END_TEST

START_TEST(device_program_that_is_another)
{
	begin();
	says((struct lack){ "SGPU_PROGRAM", "/bin/true", NULL }, "no GPU");
}
END_TEST

START_TEST(sizes_that_cannot_be)
{
	static const char *const sizes[] = { "junk",   "-1", "1M",
					     "3M",     "0",  "99999999T",
					     "2M more" };

	begin();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		says((struct lack){ "SGPU_MEMORY", sizes[i], NULL },
		     "SGPU_MEMORY");
}
END_TEST

START_TEST(workers_and_faults_that_cannot_be)
{
	begin();
	says((struct lack){ "SGPU_WORKERS", "many", NULL }, "SGPU_WORKERS");
	says((struct lack){ "SGPU_FAIL", "everything", NULL }, "everything");
}
END_TEST

static void copy_file(const char *from, const char *to)
{
	static char buffer[1 << 20];
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");
	size_t n;

	ck_assert(in && out);
	while ((n = fread(buffer, 1, sizeof(buffer), in)))
		ck_assert_uint_eq(fwrite(buffer, 1, n, out), n);
	ck_assert_int_eq(fclose(out), 0);
	fclose(in);
}

/* The backend alone in a folder; then with something else for device code. */
START_TEST(no_device_code)
{
	char dir[] = P_tmpdir "/ggml-gmm-XXXXXX", plugin[PATH_MAX],
	     code[PATH_MAX];

	begin();
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(plugin, sizeof(plugin), "%s/libggml-gmm.so", dir);
	snprintf(code, sizeof(code), "%s/libggml-gmm-device.so", dir);
	copy_file(file_of("GGML_TEST_PLUGIN"), plugin);
	says((struct lack){ NULL, NULL, plugin }, code);
	copy_file(kjv(), code);
	says((struct lack){ NULL, NULL, plugin }, code);
	/* It is there, but has no kernel of ours. */
	copy_file(plugin, code);
	says((struct lack){ NULL, NULL, plugin }, code);
	unlink(code);
	unlink(plugin);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* With all in place an unchanged program gets the XPU from the environment. */
static int gets_it(void *arg)
{
	ggml_backend_dev_t dev;

	env("GGML_BACKEND_PATH", file_of("GGML_TEST_PLUGIN"));
	cpu_load();
	dev = ggml_backend_dev_by_name("GMM0");
	return dev && ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU
		       ? 0
		       : 1;
}

START_TEST(nothing_is_missing)
{
	struct outcome o = in_child(gets_it, NULL, 20);

	ck_assert_msg(exited(o, 0), "%#x: %s", o.status, o.said);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, no_device_program);
	tcase_add_test(tc, device_program_that_is_another);
	tcase_add_test(tc, sizes_that_cannot_be);
	tcase_add_test(tc, workers_and_faults_that_cannot_be);
	tcase_add_test(tc, no_device_code);
	tcase_add_test(tc, nothing_is_missing);
}

int main(void)
{
	return run_suite("ggml-missing", 60, add);
}
